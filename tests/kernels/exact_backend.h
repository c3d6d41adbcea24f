// The contract as a backend: every operation by its exact_ functions, one number after the other.
// What it returns is what every other backend must return, to the bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/attention_residual.h"
#include "kernels/embedding.h"
#include "kernels/hadamard.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/short_conv.h"
#include "runtime/backend.h"

namespace k3 {

class ExactBackend final : public Backend {
 public:
  std::string_view name() const override { return "exact"; }

  void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) override {
    for (const int32_t id : ids) {
      for (int64_t c = 0; c < table.cols; ++c) *y++ = exact_embedding_value(table, id, c);
    }
  }

  void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) override {
    std::vector<int16_t> codes(static_cast<size_t>(weights.cols));
    for (int64_t t = 0; t < tokens; ++t) {
      const ActivationVector vector = read(weights.format, x + t * weights.cols, codes);
      for (int64_t r = 0; r < weights.rows; ++r) {
        *y++ = exact_output(weights, r, exact_row_sum(weights, r, vector), vector.step);
      }
    }
  }

  void add(const float* a, const float* b, int64_t n, float* y) override {
    for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
  }

  void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y) override {
    for (int64_t i = 0; i < n; ++i) y[i] = exact_glu(rule, gate[i], up[i]);
  }

  void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) override {
    for (int64_t i = 0; i < n; ++i) y[i] = exact_sigmoid_gate(x[i], gate_logits[i]);
  }

  void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
                float* y) override {
    for (int64_t t = 0; t < tokens; ++t, x += width, y += width) {
      const double inverse_rms = exact_inverse_rms(x, width, epsilon);
      for (int64_t i = 0; i < width; ++i) y[i] = exact_rms_norm(x[i], inverse_rms, weight[i]);
    }
  }

  void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) override {
    std::vector<double> work(static_cast<size_t>(block));
    for (int64_t at = 0; at < tokens * width; at += block) {
      exact_hadamard_block(x + at, block, work.data(), y + at);
    }
  }

  void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                              const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                              float* y) override {
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> weights;
      for (const float* source : sources) {
        weights.push_back(exact_source_score(source + t * hidden, norm, proj, hidden, epsilon));
      }
      exact_source_weights(weights.data(), static_cast<int64_t>(weights.size()));
      for (int64_t i = t * hidden; i < (t + 1) * hidden; ++i) {
        double sum = 0;
        for (size_t j = 0; j < weights.size(); ++j) {
          sum = exact_mix_step(sum, weights[j], sources[j][i]);
        }
        y[i] = static_cast<float>(sum);
      }
    }
  }

  void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                  int64_t taps, float* window, float* y) override {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t tap = 0; tap < taps; ++tap) {
          sum = exact_short_conv_step(sum, weight[c * taps + tap],
                                      short_conv_input(x, window, t, tap, channels, taps)[c]);
        }
        y[t * channels + c] = exact_short_conv_end(sum);
      }
    }
    slide_short_conv_window(x, tokens, channels, taps, window);
  }

  void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
           float* o) override {
    const int64_t dim = shape.head_dim;
    std::vector<float> q(static_cast<size_t>(dim));
    std::vector<float> k(q.size());
    std::vector<float> decay(q.size());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        const int64_t at = (t * shape.heads + h) * dim;
        const double k_scale = exact_inverse_l2(in.k + at, dim, shape.qk_norm_epsilon);
        const double q_scale = exact_inverse_l2(in.q + at, dim, shape.qk_norm_epsilon) *
                               (1.0 / std::sqrt(static_cast<double>(dim)));
        const double rate = exp_in_double(static_cast<double>(in.a_log[h]));
        for (int64_t i = 0; i < dim; ++i) {
          const auto r = static_cast<size_t>(i);
          const float logit = in.decay_logits[at + i];
          const float bias = in.dt_bias[h * dim + i];
          k[r] = exact_scale(in.k[at + i], k_scale);
          q[r] = exact_scale(in.q[at + i], q_scale);
          decay[r] = shape.decay_lower_bound
                         ? exact_bounded_decay(*shape.decay_lower_bound, rate, logit, bias)
                         : exact_softplus_decay(rate, logit, bias);
        }
        const KdaOperands operands{q.data(), k.data(), decay.data(),
                                   exact_sigmoid(in.beta_logits[t * shape.heads + h])};
        for (int64_t c = 0; c < dim; ++c) {
          o[at + c] = exact_kda_column(operands, dim, in.v[at + c], state + h * dim * dim + c);
        }
      }
    }
  }

  void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                       int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                       float* y) override {
    for (int64_t row = 0; row < tokens * heads; ++row) {
      const int64_t at = row * head_dim;
      const double inverse_rms = exact_inverse_rms(o + at, head_dim, epsilon);
      for (int64_t i = 0; i < head_dim; ++i) {
        y[at + i] =
            exact_kda_output_gate(o[at + i], inverse_rms, norm_weight[i], gate_logits[at + i]);
      }
    }
  }

  void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                     const float* cache, int64_t first_position, int64_t tokens,
                     float* o) override {
    if (kv_b.format == Format::kBf16) {
      attend<Bf16Row>(shape, q, kv_b, cache, first_position, tokens, o);
    } else {
      attend<F32Row>(shape, q, kv_b, cache, first_position, tokens, o);
    }
  }

  void route(const RouterRule& rule, const float* logits, const float* bias,
             const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
             float* weights, float* scores) override {
    const int64_t k = rule.experts_per_token;
    std::vector<float> own(static_cast<size_t>(experts));
    for (int64_t t = 0; t < tokens; ++t) {
      float* token_scores = scores == nullptr ? own.data() : scores + t * experts;
      for (int64_t e = 0; e < experts; ++e) {
        token_scores[e] = exact_sigmoid(logits[t * experts + e]);
      }
      exact_route(rule, token_scores, bias, source_ids, experts, slots + t * k, weights + t * k);
    }
  }

  void routed_experts(const RoutedExpertsShape& shape,
                      std::span<const ExpertWeights* const> experts, const float* weights,
                      int64_t k, const float* z, int64_t tokens, float* u) override {
    const int64_t latent = shape.place.latent;
    std::vector<int16_t> codes(static_cast<size_t>(latent));
    for (int64_t t = 0; t < tokens; ++t) {
      const ActivationVector vector = read(shape.place.format, z + t * latent, codes);
      std::vector<int64_t> sums(static_cast<size_t>(latent));
      std::vector<uint8_t> in_range(sums.size(), 1);
      for (int64_t slot = t * k; slot < (t + 1) * k; ++slot) {
        const ExpertWeights* expert = experts[static_cast<size_t>(slot)];
        for (int64_t band = 0; expert != nullptr && band < shape.place.bands(); ++band) {
          exact_add_band(shape, *expert, band, vector, weights[slot], sums.data(), in_range.data());
        }
      }
      for (size_t r = 0; r < sums.size(); ++r) {
        *u++ = exact_expert_output(sums[r], in_range[r], shape.fixed_point);
      }
    }
  }

 private:
  // `x` as products with `format` read it; `codes` holds its codes.
  static ActivationVector read(Format format, const float* x, std::vector<int16_t>& codes) {
    ActivationVector vector{.values = x, .codes = codes.data(), .step = {}};
    if (reads_codes(format)) {
      vector.step = exact_quantize(x, static_cast<int64_t>(codes.size()), codes.data());
    }
    return vector;
  }

  template <class Row>
  static void attend(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                     const float* cache, int64_t first_position, int64_t tokens, float* o) {
    const int64_t width = shape.cache_width();
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape.query_dim()));
    std::vector<float> query(static_cast<size_t>(width));
    std::vector<float> context(static_cast<size_t>(shape.latent));
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t positions = first_position + t + 1;
      std::vector<float> p(static_cast<size_t>(positions));
      for (int64_t h = 0; h < shape.heads; ++h, q += shape.query_dim()) {
        for (int64_t i = 0; i < shape.latent; ++i) {
          query[static_cast<size_t>(i)] =
              exact_absorb_query<Row>(kv_b, shape.key_row(h), shape.content_dim, q, i);
        }
        for (int64_t i = 0; i < shape.extra_dim; ++i) {
          query[static_cast<size_t>(shape.latent + i)] = q[shape.content_dim + i];
        }
        float maximum = -INFINITY;
        for (int64_t s = 0; s < positions; ++s) {
          const float score = exact_mla_score(query.data(), cache + s * width, width, scale);
          p[static_cast<size_t>(s)] = score;
          maximum = score > maximum ? score : maximum;
        }
        for (float& value : p) value = exact_mla_probability(value, maximum);
        const auto probability = [&](int64_t s) {
          return static_cast<double>(p[static_cast<size_t>(s)]);
        };
        const double denominator = exact_position_sum(positions, probability);
        for (int64_t i = 0; i < shape.latent; ++i) {
          const double sum = exact_position_sum(positions, [&](int64_t s) {
            return probability(s) * static_cast<double>(cache[s * width + i]);
          });
          context[static_cast<size_t>(i)] = static_cast<float>(sum / denominator);
        }
        for (int64_t d = 0; d < shape.v_dim; ++d) {
          *o++ = exact_mla_value(row_of<Row>(kv_b, shape.value_row(h) + d), context.data(),
                                 shape.latent);
        }
      }
    }
  }
};

}  // namespace k3
