// The backward half of each operation: from the gradient of its output to those of its inputs, for
// tuning a compressed model's scales and gains.
//
// Every function adds to the gradients it is given and overwrites nothing, so that a value which
// several operations read collects all of its gradient. A null gradient is not wanted. What the
// forward pass rounds or quantizes passes as if it were not (a straight-through gradient): these
// are the derivatives of the functions that `reference` computes.
//
// Not among the exact bits that all backends share, but the same bits on any number of threads:
// sums over tokens go through the tokens in order. All start from a fresh sequence: convolution
// windows and KDA states of zero, and a cache without earlier positions.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/activation.h"
#include "kernels/kda.h"
#include "kernels/mla_attention.h"
#include "kernels/routed_experts.h"
#include "kernels/router.h"
#include "schema/matrix_view.h"

namespace k3::gradient {

// y [tokens, rows] = W x: gx [tokens, cols] from gy, and for a matrix in blocks160 g_scales [rows,
// blocks], of the scale of each 160 inputs of a row, w = scale x code.
void matmul(const MatrixView& weights, const float* x, const float* gy, int64_t tokens, float* gx,
            float* g_scales);

// Of the same product with respect to each weight: g_weights [rows, cols].
void matmul_weights(const float* x, const float* gy, int64_t tokens, int64_t rows, int64_t cols,
                    float* g_weights);

// y = rms_norm(x; weight): g_weight [width].
void rms_norm(const float* x, const float* weight, const float* gy, int64_t tokens, int64_t width,
              double epsilon, float* gx, float* g_weight);

void glu(const GluRule& rule, const float* gate, const float* up, const float* gy, int64_t n,
         float* g_gate, float* g_up);

// y = x sigmoid(gate_logits)
void sigmoid_gate(const float* x, const float* gate_logits, const float* gy, int64_t n, float* gx,
                  float* g_gate_logits);

// g_sources: one [tokens, hidden] for each of `sources`; g_norm [hidden].
void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                            const float* proj, const float* gy, int64_t tokens, int64_t hidden,
                            double epsilon, std::span<float* const> g_sources, float* g_norm);

// From a window of zeros.
void short_conv(const float* x, const float* weight, const float* gy, int64_t tokens,
                int64_t channels, int64_t taps, float* gx);

// As KdaInputs.
struct KdaGradients {
  float* q = nullptr;
  float* k = nullptr;
  float* v = nullptr;
  float* decay_logits = nullptr;
  float* beta_logits = nullptr;
};
// From a state of zeros. Keeps the states of all tokens of one head a thread: tokens * head_dim^2
// floats.
void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, const float* go,
         const KdaGradients& gradients);

// g_norm_weight [head_dim].
void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                     const float* gy, int64_t tokens, int64_t heads, int64_t head_dim,
                     double epsilon, float* go, float* g_norm_weight, float* g_gate_logits);

// Tokens at the positions 0 to tokens - 1, which `cache` [tokens, latent + extra] holds: gq as q,
// g_cache as cache.
void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                   const float* cache, int64_t tokens, const float* go, float* gq, float* g_cache);

// The choice itself has no gradient: g_logits [tokens, experts] gets that of the chosen slots'
// weights [tokens, k].
void route(const RouterRule& rule, const float* logits, const int32_t* slots,
           const float* g_weights, int64_t tokens, int64_t experts, float* g_logits);

// gz [tokens, latent] and g_weights [tokens, k]; the experts themselves are not tuned.
void routed_experts(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                    const float* weights, int64_t k, const float* z, int64_t tokens,
                    const float* gu, float* gz, float* g_weights);

}  // namespace k3::gradient
