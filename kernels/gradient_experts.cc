// An expert's three matrices are decoded once for all tokens that visit it; then everything is
// products of matrices with a row for each visit. W2^T gu gives both what the weight of a visit
// gets, its product with h, and what h gets, so that w2 h itself is never needed.
//
// Experts are what threads take. Each visit keeps its part of gz, and a token's parts are added in
// the order of its slots; pieces of the batch bound what is kept.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/activation.h"
#include "kernels/decode_rows.h"
#include "kernels/elementary.h"
#include "kernels/expert_visits.h"
#include "kernels/gradients.h"
#include "kernels/lane_sum.h"
#include "kernels/parallel.h"
#include "kernels/team_product.h"
#include "schema/error.h"

namespace k3::gradient {
namespace {

constexpr int64_t kKeptValues = int64_t{1} << 24;  // of visits' parts of gz: 64 MiB

std::vector<float> zeros(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count));
}

// The rows of x [tokens, width] of each visit's token.
std::vector<float> gather(const ExpertVisits& group, int64_t k, const float* x, int64_t width) {
  std::vector<float> rows;
  rows.reserve(group.slots.size() * static_cast<size_t>(width));
  for (const int64_t slot : group.slots) {
    const float* row = x + slot / k * width;
    rows.insert(rows.end(), row, row + width);
  }
  return rows;
}

// A piece of the batch.
struct Piece {
  const RoutedExpertsShape& shape;
  std::span<const ExpertWeights* const> experts;
  const float* weights;
  int64_t k;
  const float* z;
  int64_t tokens;
  const float* gu;
};

// All visits of one expert.
class Visits {
 public:
  Visits(const Piece& piece, const ExpertVisits& group)
      : shape_(piece.shape),
        weights_(piece.weights),
        group_(group),
        visits_(std::ssize(group.slots)),
        latent_(piece.shape.place.latent),
        z_(gather(group, piece.k, piece.z, latent_)),
        gu_(gather(group, piece.k, piece.gu, latent_)),
        gz_(zeros(visits_ * latent_)),
        weight_gradients_(group.slots.size()) {}

  // visit_gz [tokens * k, latent] receives the visits' rows, and g_weights [tokens, k] is added to,
  // unless null.
  void step_back(float* visit_gz, float* g_weights) {
    for (int64_t band = 0; band < shape_.place.bands(); ++band) {
      add_band(band, visit_gz != nullptr);
    }
    for (int64_t v = 0; v < visits_; ++v) {
      const int64_t slot = group_.slots[static_cast<size_t>(v)];
      if (g_weights != nullptr) {
        g_weights[slot] += static_cast<float>(weight_gradients_[static_cast<size_t>(v)]);
      }
      if (visit_gz != nullptr) {
        std::copy_n(gz_.data() + v * latent_, latent_, visit_gz + slot * latent_);
      }
    }
  }

 private:
  std::vector<float> decode(int64_t band, ExpertMatrix matrix) const {
    const MatrixView part = view_expert_part(shape_, *group_.expert, band, matrix);
    std::vector<float> rows = zeros(part.rows * part.cols);
    decode_rows(part, 0, part.rows, rows.data());
    return rows;
  }

  void add_band(int64_t band, bool wants_gz) {
    const int64_t inner = shape_.place.band_inner(band);
    const std::vector<float> w1 = decode(band, ExpertMatrix::kW1);
    const std::vector<float> w3 = decode(band, ExpertMatrix::kW3);
    const std::vector<float> w2 = decode(band, ExpertMatrix::kW2);
    const FloatMatrix gate_rows{w1.data(), latent_};
    const FloatMatrix up_rows{w3.data(), latent_};
    const int64_t values = visits_ * inner;
    std::vector<float> gate = zeros(values);
    std::vector<float> up = zeros(values);
    std::vector<float> hidden = zeros(values);
    std::vector<float> g_hidden = zeros(values);
    add_team_product(visits_, inner, latent_, {z_.data(), latent_}, gate_rows.transposed(),
                     gate.data(), inner);
    add_team_product(visits_, inner, latent_, {z_.data(), latent_}, up_rows.transposed(), up.data(),
                     inner);
    cpu::glu(glu_rule(shape_), gate.data(), up.data(), values, hidden.data());
    add_team_product(visits_, inner, latent_, {gu_.data(), latent_}, {w2.data(), inner},
                     g_hidden.data(), inner);
    weigh(inner, hidden.data(), g_hidden.data());
    if (!wants_gz) return;
    std::vector<float> g_gate = zeros(values);
    std::vector<float> g_up = zeros(values);
    glu(glu_rule(shape_), gate.data(), up.data(), g_hidden.data(), values, g_gate.data(),
        g_up.data());
    add_team_product(visits_, latent_, inner, {g_gate.data(), inner}, gate_rows, gz_.data(),
                     latent_);
    add_team_product(visits_, latent_, inner, {g_up.data(), inner}, up_rows, gz_.data(), latent_);
  }

  // g_hidden comes as W2^T gu, and leaves weighted as u weights the visit.
  void weigh(int64_t inner, const float* hidden, float* g_hidden) {
    for (int64_t v = 0; v < visits_; ++v, hidden += inner, g_hidden += inner) {
      weight_gradients_[static_cast<size_t>(v)] += lane_sum(inner, [=](int64_t i) {
        return static_cast<double>(hidden[i]) * static_cast<double>(g_hidden[i]);
      });
      const float weight = weights_[group_.slots[static_cast<size_t>(v)]];
      for (int64_t i = 0; i < inner; ++i) g_hidden[i] *= weight;
    }
  }

  const RoutedExpertsShape& shape_;
  const float* weights_;
  const ExpertVisits& group_;
  int64_t visits_;
  int64_t latent_;
  std::vector<float> z_, gu_, gz_;  // [visits, latent]
  std::vector<double> weight_gradients_;
};

void add_piece(const Piece& piece, float* gz, float* g_weights) {
  const int64_t latent = piece.shape.place.latent;
  const std::vector<ExpertVisits> groups = group_visits(piece.experts);
  std::vector<float> visit_gz = zeros(gz == nullptr ? 0 : piece.tokens * piece.k * latent);
  // Of each visit, five products of latent x inner.
  const int64_t visits =
      divide_up(piece.tokens * piece.k, std::max<int64_t>(1, std::ssize(groups)));
  parallel_ranges(std::ssize(groups), visits * latent * piece.shape.place.inner * 5 / 16,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      Visits(piece, groups[static_cast<size_t>(i)])
                          .step_back(gz == nullptr ? nullptr : visit_gz.data(), g_weights);
                    }
                  });
  if (gz == nullptr) return;
  parallel_ranges(piece.tokens, piece.k * latent, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin * piece.k; slot < end * piece.k; ++slot) {
      if (piece.experts[static_cast<size_t>(slot)] == nullptr) continue;
      const float* part = visit_gz.data() + slot * latent;
      float* const row = gz + slot / piece.k * latent;
      for (int64_t c = 0; c < latent; ++c) row[c] += part[c];
    }
  });
}

// One token. With s the chosen scores and S their sum, (s_j / S)' = (s_j' - s_j / S sum s_i') / S.
void route_token(const RouterRule& rule, const float* logits, const int32_t* slots,
                 const float* g_weights, float* g_logits) {
  const int64_t k = rule.experts_per_token;
  double sum = 0;
  double weighted = 0;
  for (int64_t j = 0; j < k; ++j) {
    if (slots[j] < 0) continue;
    const double score = sigmoid_in_double(static_cast<double>(logits[slots[j]]));
    sum += score;
    weighted += score * static_cast<double>(g_weights[j]);
  }
  const double divisor = rule.renormalize ? sum + 1e-20 : 1.0;
  const double mean = rule.renormalize ? weighted / divisor : 0.0;
  for (int64_t j = 0; j < k; ++j) {
    if (slots[j] < 0) continue;
    const double score = sigmoid_in_double(static_cast<double>(logits[slots[j]]));
    const double g_score =
        (static_cast<double>(g_weights[j]) - mean) / divisor * rule.routed_scaling_factor;
    g_logits[slots[j]] += static_cast<float>(g_score * score * (1.0 - score));
  }
}

}  // namespace

void route(const RouterRule& rule, const float* logits, const int32_t* slots,
           const float* g_weights, int64_t tokens, int64_t experts, float* g_logits) {
  if (g_logits == nullptr) return;
  const int64_t k = rule.experts_per_token;
  parallel_ranges(tokens, k * 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      route_token(rule, logits + t * experts, slots + t * k, g_weights + t * k,
                  g_logits + t * experts);
    }
  });
}

void routed_experts(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                    const float* weights, int64_t k, const float* z, int64_t tokens,
                    const float* gu, float* gz, float* g_weights) {
  K3_CHECK(!lies_in_blocks160(shape.place.format));
  K3_CHECK(std::ssize(experts) == tokens * k);
  const int64_t latent = shape.place.latent;
  const int64_t most = std::max<int64_t>(1, kKeptValues / std::max<int64_t>(1, k * latent));
  for (int64_t begin = 0; begin < tokens; begin += most) {
    const int64_t count = std::min(most, tokens - begin);
    add_piece(
        {shape, experts.subspan(static_cast<size_t>(begin * k), static_cast<size_t>(count * k)),
         weights + begin * k, k, z + begin * latent, count, gu + begin * latent},
        gz == nullptr ? nullptr : gz + begin * latent,
        g_weights == nullptr ? nullptr : g_weights + begin * k);
  }
}

}  // namespace k3::gradient
