// Kimi Delta Attention: the recurrence of one layer, token after token, and its output gate.
//
// Each head keeps a state S [key, value] in float. For each token, with unit keys k, scaled unit
// queries q, a decay for every key channel and one beta (kimi-k3 technical report, KDA; the Kimi
// Linear paper):
//   S <- diag(decay) S;   u = beta (v - S^T k);   S <- S + k u^T;   o = S^T q
// u reads the decayed state and o the updated one.
//
// Prefill runs the same recurrence. A chunked form is faster on matrix units but adds in another
// order, so a prompt would give other bits than its tokens one by one.
//
// Exact, operands (double inside, one rounding to float each):
//   k = k (1 / sqrt(sum k^2 + epsilon)), the sum in lane order
//   q = q (1 / sqrt(sum q^2 + epsilon) * (1 / sqrt(head_dim))), the product in brackets first
//   decay = e^g with z = logit + dt_bias, a = e^a_log and
//     g = bound sigmoid(a z), where there is a lower bound (K3), or g = -a softplus(z)
//     (Kimi-Linear)
//   beta = sigmoid(logit)
// Exact, state (float), for each value column, key rows ascending, the sums from 0:
//   S = S decay;   sum = fma(S, k, sum);   u = beta (v - sum), two roundings;
//   S = fma(k, u, S);   o = fma(S, q, o)
//
// Against `reference` (double sums, the same float state): the operands agree to one ulp; a sum
// over d = head_dim rows is off by at most d 2^-24 sum|S k|. With |S| <= s and unit k that is s
// sqrt(d) d 2^-24 a step in u, and as much in o; decay < 1 keeps the steps' errors from growing
// faster than their number.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "kernels/elementary.h"
#include "kernels/lane_sum.h"
#include "kernels/rms_norm.h"
#include "schema/host_device.h"

namespace k3 {

struct KdaShape {
  int64_t heads = 0;
  int64_t head_dim = 0;                     // of keys and values
  std::optional<double> decay_lower_bound;  // ModelConfig::decay_lower_bound
  double qk_norm_epsilon = 0;
};

struct KdaInputs {
  const float* q = nullptr;             // [tokens, heads * head_dim], after the convolution
  const float* k = nullptr;             // as q
  const float* v = nullptr;             // as q
  const float* decay_logits = nullptr;  // as q, before dt_bias
  const float* beta_logits = nullptr;   // [tokens, heads]
  const float* a_log = nullptr;         // [heads]; a stored vector may be longer
  const float* dt_bias = nullptr;       // [heads * head_dim]
};

// What the recurrence reads of one head and token: q, k, decay [head_dim].
struct KdaOperands {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* decay = nullptr;
  float beta = 0;
};

// What the lane sum of the squares becomes.
K3_HOST_DEVICE inline double inverse_l2_of(double squares, double epsilon) {
  return 1.0 / std::sqrt(squares + epsilon);
}
K3_HOST_DEVICE inline double exact_inverse_l2(const float* x, int64_t dim, double epsilon) {
  const double squares = lane_sum(dim, [x](int64_t i) {
    const auto value = static_cast<double>(x[i]);
    return value * value;
  });
  return inverse_l2_of(squares, epsilon);
}

K3_HOST_DEVICE inline float exact_scale(float x, double scale) {
  return static_cast<float>(static_cast<double>(x) * scale);
}

// `rate` is exp_in_double(a_log).
K3_HOST_DEVICE inline float exact_bounded_decay(double bound, double rate, float logit,
                                                float dt_bias) {
  const double z = static_cast<double>(logit) + static_cast<double>(dt_bias);
  return static_cast<float>(exp_in_double(bound * sigmoid_in_double(rate * z)));
}
K3_HOST_DEVICE inline float exact_softplus_decay(double rate, float logit, float dt_bias) {
  const double z = static_cast<double>(logit) + static_cast<double>(dt_bias);
  return static_cast<float>(exp_in_double(-rate * softplus_in_double(z)));
}

// One value column, `column`, of the state [head_dim, head_dim]: updates it and returns its output.
K3_HOST_DEVICE inline float exact_kda_column(const KdaOperands& operands, int64_t head_dim,
                                             float value, float* column) {
  float sum = 0;
  for (int64_t r = 0; r < head_dim; ++r) {
    float& s = column[r * head_dim];
    s *= operands.decay[r];
    sum = std::fma(s, operands.k[r], sum);
  }
  const float u = operands.beta * (value - sum);
  float output = 0;
  for (int64_t r = 0; r < head_dim; ++r) {
    float& s = column[r * head_dim];
    s = std::fma(operands.k[r], u, s);
    output = std::fma(s, operands.q[r], output);
  }
  return output;
}

// RMSNorm of one head's output times the sigmoid of its gate, rounded once.
K3_HOST_DEVICE inline float exact_kda_output_gate(float o, double inverse_rms, float weight,
                                                  float gate_logit) {
  return static_cast<float>(static_cast<double>(o) * inverse_rms * static_cast<double>(weight) *
                            sigmoid_in_double(static_cast<double>(gate_logit)));
}

}  // namespace k3

namespace k3::reference {
// state [heads, key, value] is updated; o [tokens, heads * head_dim].
void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state, float* o);
// y = rms_norm(o of each head; norm_weight [head_dim]) sigmoid(gate_logits); o, gate_logits, y
// [tokens, heads * head_dim]; y may be o.
void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                     int64_t tokens, int64_t heads, int64_t head_dim, double epsilon, float* y);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state, float* o);
void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                     int64_t tokens, int64_t heads, int64_t head_dim, double epsilon, float* y);
}  // namespace k3::cpu
