// Elementwise operations: the gated activations of the feed-forward blocks, the sigmoid output gate
// and the residual addition.
//
// Exact: everything inside is double, in the order written in the exact_ functions, and one
// rounding to float ends it. Against `reference`, which calls libm, a result differs by at most one
// float ulp (the double values agree to 2^-48, so they round to neighbours at worst).
#pragma once

#include <cstdint>

#include "kernels/elementary.h"
#include "schema/host_device.h"
#include "schema/model_config.h"

namespace k3 {

// Which gated activation, and SiTU's two caps (ModelConfig::situ_beta, situ_linear_beta); SiLU
// ignores them.
struct GluRule {
  Activation activation = Activation::kSilu;
  double situ_beta = 0;
  double situ_linear_beta = 0;
};

// SiTU-GLU: beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta). The sigmoid takes
// the raw gate, not the capped one; |result| <= beta * linear_beta (kimi-k3 technical report,
// SiTU).
K3_HOST_DEVICE inline float exact_situ_glu(double beta, double linear_beta, float gate, float up) {
  const auto g = static_cast<double>(gate);
  const auto u = static_cast<double>(up);
  const double capped_gate = beta * tanh_in_double(g / beta);
  const double capped_up = linear_beta * tanh_in_double(u / linear_beta);
  return static_cast<float>(capped_gate * sigmoid_in_double(g) * capped_up);
}

// SiLU-GLU: g sigmoid(g) u.
K3_HOST_DEVICE inline float exact_silu_glu(float gate, float up) {
  return static_cast<float>(silu_in_double(static_cast<double>(gate)) * static_cast<double>(up));
}

K3_HOST_DEVICE inline float exact_glu(const GluRule& rule, float gate, float up) {
  return rule.activation == Activation::kSitu
             ? exact_situ_glu(rule.situ_beta, rule.situ_linear_beta, gate, up)
             : exact_silu_glu(gate, up);
}

// x sigmoid(gate_logit).
K3_HOST_DEVICE inline float exact_sigmoid_gate(float x, float gate_logit) {
  return static_cast<float>(static_cast<double>(x) *
                            sigmoid_in_double(static_cast<double>(gate_logit)));
}

}  // namespace k3

// The reference meaning: libm, and one rounding as above.
namespace k3::reference {
// y[i] = glu(gate[i], up[i]) for n values; y may be gate or up.
void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y);
// y[i] = x[i] sigmoid(gate_logits[i]); y may be x.
void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y);
// y[i] = a[i] + b[i] in float; y may be a or b.
void add(const float* a, const float* b, int64_t n, float* y);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y);
void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y);
void add(const float* a, const float* b, int64_t n, float* y);
}  // namespace k3::cpu
