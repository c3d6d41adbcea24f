// The backend that goldens are compared with: each operation in its plainest form.
#include "kernels/attention_residual.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/short_conv.h"
#include "runtime/backend.h"

namespace k3 {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }

  void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) override {
    reference::embed(table, ids, y);
  }
  void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) override {
    reference::matmul(weights, x, tokens, y);
  }
  void add(const float* a, const float* b, int64_t n, float* y) override {
    reference::add(a, b, n, y);
  }
  void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y) override {
    reference::glu(rule, gate, up, n, y);
  }
  void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) override {
    reference::sigmoid_gate(x, gate_logits, n, y);
  }
  void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
                float* y) override {
    reference::rms_norm(x, weight, tokens, width, epsilon, y);
  }
  void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                              const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                              float* y) override {
    reference::attention_residual_mix(sources, norm, proj, tokens, hidden, epsilon, y);
  }
  void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                  int64_t taps, float* window, float* y) override {
    reference::short_conv(x, weight, tokens, channels, taps, window, y);
  }
  void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
           float* o) override {
    reference::kda(shape, in, tokens, state, o);
  }
  void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                       int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                       float* y) override {
    reference::kda_output_gate(o, norm_weight, gate_logits, tokens, heads, head_dim, epsilon, y);
  }
  void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                     const float* cache, int64_t first_position, int64_t tokens,
                     float* o) override {
    reference::mla_attention(shape, q, kv_b, cache, first_position, tokens, o);
  }
  void route(const RouterRule& rule, const float* logits, const float* bias,
             const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
             float* weights, float* scores) override {
    reference::route(rule, logits, bias, source_ids, tokens, experts, slots, weights, scores);
  }
  void routed_experts(const RoutedExpertsShape& shape,
                      std::span<const ExpertWeights* const> experts, const float* weights,
                      int64_t k, const float* z, int64_t tokens, float* u) override {
    reference::routed_experts(shape, experts, weights, k, z, tokens, u);
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace k3
