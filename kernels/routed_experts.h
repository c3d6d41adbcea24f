// u = sum over the chosen experts j of p_j * w2_j glu(w1_j z, w3_j z), so that any split of the
// experts gives the same bits.
//
// A float sum over experts would depend on their order, on pruning and on who owns which expert. So
// each expert's contribution becomes an integer first, in a fixed point 2^-F that the pack gives
// per layer, and from there on only integers are added: over bands, experts, threads, devices and
// hosts, in any order. An expert is cut into bands of 256 inner values (schema/layout.h), which is
// what a device may own. For one band:
//   1. g = w1 z, u = w3 z, as matmul.h says; for mxfp4 z was quantized once for all experts.
//   2. h = glu(g, u) in float (activation.h), NaN where SiLU passes kLargestSiluActivation; for
//      mxfp4 the band's h is quantized on its own.
//   3. s = the row sum of w2's columns of the band with h (mxfp4: an int64 as double; bf16, f32: 32
//      lanes), and t = rint(s * p_j * 2^k), two double multiplications in that order, where
//      k = F for bf16 and f32, and least exponent of w2 - 128 + step exponent of h + F for mxfp4.
//   4. sum += t.
// The output is float(double(sum) * 2^-F).
//
// A term that is NaN (because z, h, p or a weight is) or larger than 2^62 has no integer; its
// output is then NaN, whatever else is added. The flag beside each sum only ever falls, so it is as
// free of order as the sum. F is chosen so that sums of activations within their bound, SiTU's own
// or the one that step 2 gives SiLU, stay below 2^62.
//
// Distance from `reference` (float activations, double sums) with SiTU, A = situ_beta, h = G U with
// G = A tanh(g / A) sigmoid(g) and U = B tanh(u / B):
//   dg, du  of g and u, by matmul.h's bound
//   dh      <= (1 + A / 4) (|U| + du) dg + A du + 2^-22 |h|, since |G'| <= 1 + A / 4, |U'| <= 1
//   output  <= sum over j of p_j sum |w2| (dh + 2^(e - 1)), e the band's exponent,
//              + 2^(-F - 1) for each expert and band, + 2^-22 of the output
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/activation.h"
#include "kernels/matmul.h"
#include "kernels/quantize_activations.h"
#include "schema/host_device.h"
#include "schema/layout.h"
#include "schema/matrix_view.h"
#include "schema/model_config.h"

namespace k3 {

// What all experts of a layer share.
struct RoutedExpertsShape {
  ExpertBands place;
  Activation activation = Activation::kSilu;
  double situ_beta = 0;
  double situ_linear_beta = 0;
  int32_t fixed_point = 0;  // F: sums count 2^-F
  // Where a trace is recorded: receives the Euclidean norm of each expert's output before its
  // weight, [tokens, k], 0 for a null expert. The same at any thread count, but not among the bits
  // that all backends share. Null: not wanted.
  float* norms = nullptr;
};

// One expert: its extent, 64-byte aligned, and the least exponents of w1, w3, w2 (ExpertMatrix).
struct ExpertWeights {
  const std::byte* extent = nullptr;
  std::array<uint8_t, 3> least_exponent = {};
  // Says that two are the same expert of a model, for backends that keep copies; -1: unknown.
  int64_t name = -1;
};

inline GluRule glu_rule(const RoutedExpertsShape& shape) {
  return {shape.activation, shape.situ_beta, shape.situ_linear_beta};
}

// Step 2's limit: `h`, or NaN when SiLU brought it beyond what F allows for.
K3_HOST_DEVICE inline float exact_held_activation(Activation activation, float h) {
  const bool held =
      activation == Activation::kSitu || fabs(static_cast<double>(h)) <= kLargestSiluActivation;
  return held ? h : std::numeric_limits<float>::quiet_NaN();
}

inline MatrixView view_expert_part(const RoutedExpertsShape& shape, const ExpertWeights& expert,
                                   int64_t band, ExpertMatrix matrix) {
  return view_expert_part(shape.place, band, matrix,
                          expert.least_exponent[static_cast<size_t>(matrix)], expert.extent);
}

// The 2^k of step 3: what one unit of w2's row sum counts in the fixed point.
K3_HOST_DEVICE inline double exact_term_power(const MatrixView& w2, ActivationStep step,
                                              int32_t fixed_point) {
  const int64_t shift =
      reads_codes(w2.format) ? int64_t{w2.least_exponent} - 128 + fixed_point : fixed_point;
  return step_power(step, shift);
}

inline constexpr double kLargestTerm = 0x1p62;

// Step 4 for one term before its rounding. `in_range` turns 0 for good when the term has no
// integer.
K3_HOST_DEVICE inline void exact_add_term(double term, int64_t& sum, uint8_t& in_range) {
  const bool fits = fabs(term) <= kLargestTerm;  // false for NaN
  const auto rounded = static_cast<int64_t>(rint(fits ? term : 0.0));
  // Unsigned: a sum beyond int64 wraps, so that addition stays associative.
  sum = static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(rounded));
  in_range = static_cast<uint8_t>(in_range & static_cast<uint8_t>(fits));
}

K3_HOST_DEVICE inline float exact_expert_output(int64_t sum, uint8_t in_range,
                                                int32_t fixed_point) {
  if (in_range == 0) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(static_cast<double>(sum) * power_of_two(-int64_t{fixed_point}));
}

// Adds one band of one expert for one token, weighted by `weight`, to sums[latent] and
// in_range[latent]. `z` has what the format reads.
inline void exact_add_band(const RoutedExpertsShape& shape, const ExpertWeights& expert,
                           int64_t band, const ActivationVector& z, float weight, int64_t* sums,
                           uint8_t* in_range) {
  const MatrixView w1 = view_expert_part(shape, expert, band, ExpertMatrix::kW1);
  const MatrixView w3 = view_expert_part(shape, expert, band, ExpertMatrix::kW3);
  const MatrixView w2 = view_expert_part(shape, expert, band, ExpertMatrix::kW2);
  std::array<float, kBandInner> h;
  for (int64_t i = 0; i < w1.rows; ++i) {
    const float gate = exact_output(w1, i, exact_row_sum(w1, i, z), z.step);
    const float up = exact_output(w3, i, exact_row_sum(w3, i, z), z.step);
    h[static_cast<size_t>(i)] =
        exact_held_activation(shape.activation, exact_glu(glu_rule(shape), gate, up));
  }
  std::array<int16_t, kBandInner> codes;
  ActivationVector hidden{.values = h.data(), .codes = codes.data(), .step = {}};
  if (reads_codes(w2.format)) hidden.step = exact_quantize(h.data(), w2.cols, codes.data());
  const double power = exact_term_power(w2, hidden.step, shape.fixed_point);
  for (int64_t r = 0; r < w2.rows; ++r) {
    const double row_sum = exact_row_sum(w2, r, hidden);
    exact_add_term(row_sum * static_cast<double>(weight) * power, sums[r], in_range[r]);
  }
}

}  // namespace k3

namespace k3::reference {
// u[t, :] = sum over j < k of weights[t, j] * expert experts[t, j] of z[t, :]. experts and weights
// are [tokens, k], z and u [tokens, latent]. A null expert is left out: it adds nothing. Experts
// are mxfp4, bf16 or f32; mxfp4 needs latent and inner to be multiples of 32.
void routed_experts(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                    const float* weights, int64_t k, const float* z, int64_t tokens, float* u);
}  // namespace k3::reference

namespace k3::cpu {
// As reference::routed_experts, with the bits of exact_add_band and exact_expert_output in any
// order of the experts and on any number of threads. Holds tokens * k * inner values of h in
// between.
void routed_experts(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                    const float* weights, int64_t k, const float* z, int64_t tokens, float* u);
}  // namespace k3::cpu
