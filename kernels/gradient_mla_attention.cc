// As the reference, keys and values are expanded: a product each, and back through them two more.
// Queries go in blocks, so that scores are held for one block and one head only, and positions that
// no query of a block sees cost nothing. All heads read the cache: each keeps its part of the
// cache's gradient, and the parts are added in the order of the heads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/decode_rows.h"
#include "kernels/elementary.h"
#include "kernels/gradients.h"
#include "kernels/lane_sum.h"
#include "kernels/mla_attention.h"
#include "kernels/parallel.h"
#include "kernels/simd_targets.h"
#include "kernels/team_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient_mla_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::gradient::HWY_NAMESPACE {

// Turns unscaled scores of `seen` positions into their softmax, in place.
K3_FLATTEN void softmax_row(double scale, int64_t seen, float* scores) {
  float maximum = scores[0];
  for (int64_t s = 1; s < seen; ++s) maximum = scores[s] > maximum ? scores[s] : maximum;
  K3_INDEPENDENT_ITERATIONS
  for (int64_t s = 0; s < seen; ++s) {
    const double below = static_cast<double>(scores[s]) - static_cast<double>(maximum);
    scores[s] = static_cast<float>(exp_in_double(below * scale));
  }
  const double sum = lane_sum(seen, [=](int64_t s) { return static_cast<double>(scores[s]); });
  const auto inverse = static_cast<float>(1.0 / sum);
  for (int64_t s = 0; s < seen; ++s) scores[s] *= inverse;
}

// From the gradients of a softmax's outputs to those of the unscaled scores, in place.
K3_FLATTEN void softmax_gradient_row(double scale, int64_t seen, const float* probabilities,
                                     float* gradients) {
  const double mean = lane_sum(seen, [=](int64_t s) {
    return static_cast<double>(probabilities[s]) * static_cast<double>(gradients[s]);
  });
  for (int64_t s = 0; s < seen; ++s) {
    gradients[s] = static_cast<float>(static_cast<double>(probabilities[s]) *
                                      (static_cast<double>(gradients[s]) - mean) * scale);
  }
}

}  // namespace k3::gradient::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::gradient {
namespace {

HWY_EXPORT(softmax_row);
HWY_EXPORT(softmax_gradient_row);

std::vector<float> zeros(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count));
}

// What all heads of a call read.
struct Attention {
  const MlaShape& shape;
  const float* q;
  const MatrixView& kv_b;
  const float* cache;
  int64_t tokens;
  const float* go;

  FloatMatrix latents() const { return {cache, shape.cache_width()}; }
  int64_t q_stride() const { return shape.heads * shape.query_dim(); }
  int64_t o_stride() const { return shape.heads * shape.v_dim; }
};

class Head {
 public:
  Head(const Attention& call, int64_t head)
      : call_(call),
        shape_(call.shape),
        head_(head),
        weights_(zeros((shape_.content_dim + shape_.v_dim) * shape_.latent)),
        keys_(zeros(call.tokens * shape_.query_dim())),
        values_(zeros(call.tokens * shape_.v_dim)),
        g_keys_(zeros(call.tokens * shape_.query_dim())),
        g_values_(zeros(call.tokens * shape_.v_dim)) {
    decode_rows(call.kv_b, shape_.key_row(head), shape_.content_dim + shape_.v_dim,
                weights_.data());
    add_team_product(call.tokens, shape_.content_dim, shape_.latent, call.latents(),
                     key_weights().transposed(), keys_.data(), shape_.query_dim());
    add_team_product(call.tokens, shape_.v_dim, shape_.latent, call.latents(),
                     value_weights().transposed(), values_.data(), shape_.v_dim);
    for (int64_t s = 0; s < call.tokens; ++s) {
      std::copy_n(call.cache + s * shape_.cache_width() + shape_.latent, shape_.extra_dim,
                  keys_.data() + s * shape_.query_dim() + shape_.content_dim);
    }
  }

  // Adds to this head's part of gq unless null; keeps the gradients of keys and values.
  void step_back(float* gq) {
    for (int64_t t = 0; t < call_.tokens; t += kAttentionBlock) {
      add_block(t, std::min(kAttentionBlock, call_.tokens - t), gq);
    }
  }

  // Adds to g_cache [tokens, latent + extra].
  void add_cache_gradient(float* g_cache) const {
    const int64_t width = shape_.cache_width();
    add_team_product(call_.tokens, shape_.latent, shape_.content_dim,
                     {g_keys_.data(), shape_.query_dim()}, key_weights(), g_cache, width);
    add_team_product(call_.tokens, shape_.latent, shape_.v_dim, {g_values_.data(), shape_.v_dim},
                     value_weights(), g_cache, width);
    for (int64_t s = 0; s < call_.tokens; ++s) {
      const float* from = g_keys_.data() + s * shape_.query_dim() + shape_.content_dim;
      float* const to = g_cache + s * width + shape_.latent;
      for (int64_t d = 0; d < shape_.extra_dim; ++d) to[d] += from[d];
    }
  }

 private:
  // Queries `first` to first + count - 1.
  void add_block(int64_t first, int64_t count, float* gq) {
    const int64_t seen = first + count;  // by the last of them
    const int64_t query_dim = shape_.query_dim();
    const int64_t q_at = first * call_.q_stride() + head_ * query_dim;
    const FloatMatrix queries{call_.q + q_at, call_.q_stride()};
    const FloatMatrix outputs{call_.go + first * call_.o_stride() + head_ * shape_.v_dim,
                              call_.o_stride()};
    const FloatMatrix keys{keys_.data(), query_dim};
    const FloatMatrix values{values_.data(), shape_.v_dim};
    std::vector<float> probabilities = zeros(count * seen);
    std::vector<float> g_scores = zeros(count * seen);
    add_team_product(count, seen, query_dim, queries, keys.transposed(), probabilities.data(),
                     seen);
    add_team_product(count, seen, shape_.v_dim, outputs, values.transposed(), g_scores.data(),
                     seen);
    const double scale = 1.0 / std::sqrt(static_cast<double>(query_dim));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row_seen = first + i + 1;
      float* const row = probabilities.data() + i * seen;
      float* const g_row = g_scores.data() + i * seen;
      HWY_DYNAMIC_DISPATCH(softmax_row)(scale, row_seen, row);
      HWY_DYNAMIC_DISPATCH(softmax_gradient_row)(scale, row_seen, row, g_row);
      std::fill(row + row_seen, row + seen, 0.0F);
      std::fill(g_row + row_seen, g_row + seen, 0.0F);
    }
    const FloatMatrix g_scores_matrix{g_scores.data(), seen};
    const FloatMatrix probability_matrix{probabilities.data(), seen};
    if (gq != nullptr) {
      add_team_product(count, query_dim, seen, g_scores_matrix, keys, gq + q_at, call_.q_stride());
    }
    add_team_product(seen, query_dim, count, g_scores_matrix.transposed(), queries, g_keys_.data(),
                     query_dim);
    add_team_product(seen, shape_.v_dim, count, probability_matrix.transposed(), outputs,
                     g_values_.data(), shape_.v_dim);
  }

  FloatMatrix key_weights() const { return {weights_.data(), shape_.latent}; }
  FloatMatrix value_weights() const { return key_weights().at(shape_.content_dim, 0); }

  const Attention& call_;
  const MlaShape& shape_;
  int64_t head_;
  std::vector<float> weights_;                            // [content + v, latent]
  std::vector<float> keys_, values_, g_keys_, g_values_;  // [tokens, content + extra or v]
};

}  // namespace

void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                   const float* cache, int64_t tokens, const float* go, float* gq, float* g_cache) {
  constexpr int64_t kHeadsHeld = 16;  // whose parts of the cache's gradient are there at a time
  const Attention call{shape, q, kv_b, cache, tokens, go};
  const int64_t cells = tokens * shape.cache_width();
  std::vector<float> parts =
      zeros(g_cache == nullptr ? 0 : std::min(kHeadsHeld, shape.heads) * cells);
  for (int64_t first = 0; first < shape.heads; first += kHeadsHeld) {
    const int64_t held = std::min(kHeadsHeld, shape.heads - first);
    std::fill(parts.begin(), parts.end(), 0.0F);
    parallel_ranges(held, tokens * (tokens + shape.latent) * shape.query_dim() / 8,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        Head head(call, first + i);
                        head.step_back(gq);
                        if (g_cache != nullptr) head.add_cache_gradient(parts.data() + i * cells);
                      }
                    });
    if (g_cache == nullptr) continue;
    parallel_ranges(cells, held, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < held; ++i) {
        const float* part = parts.data() + i * cells;
        for (int64_t at = begin; at < end; ++at) g_cache[at] += part[at];
      }
    });
  }
}

}  // namespace k3::gradient
#endif  // HWY_ONCE
