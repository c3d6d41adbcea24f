// Where a gain is shared by all tokens, a token's part of its gradient is kept and the parts are
// added column by column afterwards: in the order of the tokens on any number of threads.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/attention_residual.h"
#include "kernels/elementary.h"
#include "kernels/gradients.h"
#include "kernels/parallel.h"
#include "kernels/rms_norm.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient_norms.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::gradient::HWY_NAMESPACE {

// Adds to gx and fills weight_part, unless null. With r = 1 / rms, r' = -r^3 x / width.
K3_FLATTEN void rms_norm_row(const float* x, const float* weight, const float* gy, int64_t width,
                             double epsilon, float* gx, float* weight_part) {
  const double r = exact_inverse_rms(x, width, epsilon);
  if (gx != nullptr) {
    const double dot = lane_sum(width, [=](int64_t i) {
      return static_cast<double>(gy[i]) * static_cast<double>(weight[i]) *
             static_cast<double>(x[i]);
    });
    const double pull = dot * r * r / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      const double part =
          r * (static_cast<double>(gy[i]) * static_cast<double>(weight[i]) - pull * x[i]);
      gx[i] = static_cast<float>(static_cast<double>(gx[i]) + part);
    }
  }
  if (weight_part != nullptr) {
    for (int64_t i = 0; i < width; ++i) {
      weight_part[i] = static_cast<float>(static_cast<double>(gy[i]) * x[i] * r);
    }
  }
}

// y = normed * sigmoid(gate): fills gated = gy * sigmoid, what the norm passes on, and adds to
// g_gate unless null.
K3_FLATTEN void output_gate_row(const float* o, const float* weight, const float* gate,
                                const float* gy, int64_t width, double epsilon, float* gated,
                                float* g_gate) {
  for (int64_t i = 0; i < width; ++i) {
    const double sigmoid = sigmoid_in_double(static_cast<double>(gate[i]));
    gated[i] = static_cast<float>(static_cast<double>(gy[i]) * sigmoid);
  }
  if (g_gate == nullptr) return;
  const double r = exact_inverse_rms(o, width, epsilon);
  for (int64_t i = 0; i < width; ++i) {
    const double sigmoid = sigmoid_in_double(static_cast<double>(gate[i]));
    const double normed = static_cast<double>(o[i]) * r * static_cast<double>(weight[i]);
    const double part = static_cast<double>(gated[i]) * normed * (1.0 - sigmoid);
    g_gate[i] = static_cast<float>(static_cast<double>(g_gate[i]) + part);
  }
}

// The weights of the sources of one token whose vectors start at `at`, and the gradients of their
// scores: w_j (gy . V_j - sum_k w_k gy . V_k).
K3_FLATTEN void source_gradients(const float* const* sources, int64_t count, int64_t at,
                                 const float* norm, const float* proj, const float* gy,
                                 int64_t hidden, double epsilon, double* scores, double* weights,
                                 double* score_gradients) {
  for (int64_t j = 0; j < count; ++j) {
    scores[j] = exact_source_score(sources[j] + at, norm, proj, hidden, epsilon);
    weights[j] = scores[j];
  }
  exact_source_weights(weights, count);
  double mean = 0;
  for (int64_t j = 0; j < count; ++j) {
    const float* source = sources[j] + at;
    score_gradients[j] = lane_sum(hidden, [=](int64_t i) {
      return static_cast<double>(gy[i]) * static_cast<double>(source[i]);
    });
    mean += weights[j] * score_gradients[j];
  }
  for (int64_t j = 0; j < count; ++j) {
    score_gradients[j] = weights[j] * (score_gradients[j] - mean);
  }
}

// What source V of score s = r (V . (norm * proj)) gets: V itself from the mix, and through s.
K3_FLATTEN void add_source_gradient(const float* source, const float* norm, const float* proj,
                                    const float* gy, int64_t hidden, double epsilon, double score,
                                    double weight, double score_gradient, float* g_source,
                                    float* norm_part) {
  const double r = exact_inverse_rms(source, hidden, epsilon);
  if (g_source != nullptr) {
    const double pull = score * r * r / static_cast<double>(hidden);
    for (int64_t i = 0; i < hidden; ++i) {
      const double slope =
          r * static_cast<double>(norm[i]) * static_cast<double>(proj[i]) - pull * source[i];
      const double part = weight * static_cast<double>(gy[i]) + score_gradient * slope;
      g_source[i] = static_cast<float>(static_cast<double>(g_source[i]) + part);
    }
  }
  if (norm_part != nullptr) {
    for (int64_t i = 0; i < hidden; ++i) {
      const double part = score_gradient * r * static_cast<double>(source[i]) * proj[i];
      norm_part[i] = static_cast<float>(static_cast<double>(norm_part[i]) + part);
    }
  }
}

}  // namespace k3::gradient::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::gradient {
namespace {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(output_gate_row);
HWY_EXPORT(source_gradients);
HWY_EXPORT(add_source_gradient);

constexpr int64_t kStrip = 64;

// The parts of a gain's gradient, a row for each token; none are kept if it is not wanted.
class GainParts {
 public:
  GainParts(int64_t rows, int64_t width, float* gradient)
      : rows_(rows), width_(width), gradient_(gradient) {
    if (gradient != nullptr) parts_.resize(static_cast<size_t>(rows * width));
  }

  float* row(int64_t at) { return gradient_ == nullptr ? nullptr : parts_.data() + at * width_; }

  void add() const {
    if (gradient_ == nullptr) return;
    const int64_t strips = (width_ + kStrip - 1) / kStrip;
    parallel_ranges(strips, rows_ * kStrip / 2, [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) add_strip(strip * kStrip);
    });
  }

 private:
  void add_strip(int64_t first) const {
    const int64_t count = std::min(kStrip, width_ - first);
    std::array<double, kStrip> sums = {};
    for (int64_t row = 0; row < rows_; ++row) {
      const float* part = parts_.data() + row * width_ + first;
      for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] += part[i];
    }
    for (int64_t i = 0; i < count; ++i) {
      float& gradient = gradient_[first + i];
      gradient = static_cast<float>(static_cast<double>(gradient) + sums[static_cast<size_t>(i)]);
    }
  }

  int64_t rows_;
  int64_t width_;
  float* gradient_;
  std::vector<float> parts_;
};

float* row_of(float* gradient, int64_t at) {
  return gradient == nullptr ? nullptr : gradient + at;
}

}  // namespace

void rms_norm(const float* x, const float* weight, const float* gy, int64_t tokens, int64_t width,
              double epsilon, float* gx, float* g_weight) {
  GainParts parts(tokens, width, g_weight);
  parallel_ranges(tokens, width * 2, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t at = t * width;
      HWY_DYNAMIC_DISPATCH(rms_norm_row)
      (x + at, weight, gy + at, width, epsilon, row_of(gx, at), parts.row(t));
    }
  });
  parts.add();
}

void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                     const float* gy, int64_t tokens, int64_t heads, int64_t head_dim,
                     double epsilon, float* go, float* g_norm_weight, float* g_gate_logits) {
  GainParts parts(tokens * heads, head_dim, g_norm_weight);
  parallel_ranges(tokens * heads, head_dim * 8, [&](int64_t begin, int64_t end) {
    std::vector<float> gated(static_cast<size_t>(head_dim));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * head_dim;
      HWY_DYNAMIC_DISPATCH(output_gate_row)
      (o + at, norm_weight, gate_logits + at, gy + at, head_dim, epsilon, gated.data(),
       row_of(g_gate_logits, at));
      HWY_DYNAMIC_DISPATCH(rms_norm_row)
      (o + at, norm_weight, gated.data(), head_dim, epsilon, row_of(go, at), parts.row(row));
    }
  });
  parts.add();
}

void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                            const float* proj, const float* gy, int64_t tokens, int64_t hidden,
                            double epsilon, std::span<float* const> g_sources, float* g_norm) {
  K3_CHECK(g_sources.empty() || g_sources.size() == sources.size());
  const auto count = std::ssize(sources);
  GainParts parts(tokens, hidden, g_norm);
  parallel_ranges(tokens, count * hidden * 4, [&](int64_t begin, int64_t end) {
    std::vector<double> scores(sources.size());
    std::vector<double> weights(sources.size());
    std::vector<double> score_gradients(sources.size());
    for (int64_t t = begin; t < end; ++t) {
      const int64_t at = t * hidden;
      HWY_DYNAMIC_DISPATCH(source_gradients)
      (sources.data(), count, at, norm, proj, gy + at, hidden, epsilon, scores.data(),
       weights.data(), score_gradients.data());
      for (size_t j = 0; j < sources.size(); ++j) {
        HWY_DYNAMIC_DISPATCH(add_source_gradient)
        (sources[j] + at, norm, proj, gy + at, hidden, epsilon, scores[j], weights[j],
         score_gradients[j], g_sources.empty() ? nullptr : row_of(g_sources[j], at), parts.row(t));
      }
    }
  });
  parts.add();
}

}  // namespace k3::gradient
#endif  // HWY_ONCE
