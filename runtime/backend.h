// The operations of the forward pass, behind the one inheritance of this program.
//
// Every backend but `reference` returns the bits of the exact numerics (kernels/README.md), so
// which one ran can be told from the clock alone. Tensors are float, row-major, [tokens, width],
// and lie where the backend works. The comment above each operation in kernels/ is its contract;
// here are only the names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/activation.h"
#include "kernels/kda.h"
#include "kernels/mla_attention.h"
#include "kernels/routed_experts.h"
#include "kernels/router.h"
#include "schema/matrix_view.h"

namespace k3 {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  virtual void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) = 0;
  virtual void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) = 0;
  virtual void add(const float* a, const float* b, int64_t n, float* y) = 0;
  virtual void glu(const GluRule& rule, const float* gate, const float* up, int64_t n,
                   float* y) = 0;
  virtual void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) = 0;
  virtual void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width,
                        double epsilon, float* y) = 0;
  virtual void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) = 0;
  virtual void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                                      const float* proj, int64_t tokens, int64_t hidden,
                                      double epsilon, float* y) = 0;
  virtual void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                          int64_t taps, float* window, float* y) = 0;
  virtual void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
                   float* o) = 0;
  virtual void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                               int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                               float* y) = 0;
  virtual void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                             const float* cache, int64_t first_position, int64_t tokens,
                             float* o) = 0;
  virtual void route(const RouterRule& rule, const float* logits, const float* bias,
                     const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
                     float* weights, float* scores) = 0;
  virtual void routed_experts(const RoutedExpertsShape& shape,
                              std::span<const ExpertWeights* const> experts, const float* weights,
                              int64_t k, const float* z, int64_t tokens, float* u) = 0;
};

// The backend of that name: "cpu" (the exact numerics) or "reference" (float activations and double
// sums in index order, for comparison with goldens). Throws Error that lists the names there are.
std::unique_ptr<Backend> make_backend(std::string_view name);

}  // namespace k3
