// The GPU's operations on host memory: inputs are copied there and outputs back, call by call.
// Slow, and just what is needed to hold the kernels to the vectors that every backend is held to.
#pragma once

#include "runtime/backend.h"

namespace k3::test {

class CopyingBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda, call by call"; }

  void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) override;
  void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) override;
  void add(const float* a, const float* b, int64_t n, float* y) override;
  void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y) override;
  void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) override;
  void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
                float* y) override;
  void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) override;
  void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                              const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                              float* y) override;
  void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                  int64_t taps, float* window, float* y) override;
  void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
           float* o) override;
  void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                       int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                       float* y) override;
  void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                     const float* cache, int64_t first_position, int64_t tokens, float* o) override;
  void route(const RouterRule& rule, const float* logits, const float* bias,
             const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
             float* weights, float* scores) override;
  void routed_experts(const RoutedExpertsShape& shape,
                      std::span<const ExpertWeights* const> experts, const float* weights,
                      int64_t k, const float* z, int64_t tokens, float* u) override;
};

}  // namespace k3::test
