// The backends that run on the host: one table of kernels each, and one class that calls what its
// table names.
#include <array>
#include <string>

#include "kernels/attention_residual.h"
#include "kernels/embedding.h"
#include "kernels/hadamard.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/short_conv.h"
#include "runtime/backend.h"
#include "schema/error.h"
#ifdef K3_HAS_CUDA
#include "runtime/cuda_backend.h"
#endif

namespace k3 {
namespace {

// Each operation's contract stands in its header in kernels/, once for all namespaces.
struct HostKernels {
  std::string_view name;
  decltype(&cpu::embed) embed;
  decltype(&cpu::matmul) matmul;
  decltype(&cpu::add) add;
  decltype(&cpu::glu) glu;
  decltype(&cpu::sigmoid_gate) sigmoid_gate;
  decltype(&cpu::rms_norm) rms_norm;
  decltype(&cpu::hadamard) hadamard;
  decltype(&cpu::attention_residual_mix) attention_residual_mix;
  decltype(&cpu::short_conv) short_conv;
  decltype(&cpu::kda) kda;
  decltype(&cpu::kda_output_gate) kda_output_gate;
  decltype(&cpu::mla_attention) mla_attention;
  decltype(&cpu::route) route;
  decltype(&cpu::routed_experts) routed_experts;
};

// Float activations and double sums in index order, for comparison with goldens.
constexpr HostKernels kReference = {
    .name = "reference",
    .embed = reference::embed,
    .matmul = reference::matmul,
    .add = reference::add,
    .glu = reference::glu,
    .sigmoid_gate = reference::sigmoid_gate,
    .rms_norm = reference::rms_norm,
    .hadamard = reference::hadamard,
    .attention_residual_mix = reference::attention_residual_mix,
    .short_conv = reference::short_conv,
    .kda = reference::kda,
    .kda_output_gate = reference::kda_output_gate,
    .mla_attention = reference::mla_attention,
    .route = reference::route,
    .routed_experts = reference::routed_experts,
};

// The exact numerics on all cores and vector units.
constexpr HostKernels kCpu = {
    .name = "cpu",
    .embed = cpu::embed,
    .matmul = cpu::matmul,
    .add = cpu::add,
    .glu = cpu::glu,
    .sigmoid_gate = cpu::sigmoid_gate,
    .rms_norm = cpu::rms_norm,
    .hadamard = cpu::hadamard,
    .attention_residual_mix = cpu::attention_residual_mix,
    .short_conv = cpu::short_conv,
    .kda = cpu::kda,
    .kda_output_gate = cpu::kda_output_gate,
    .mla_attention = cpu::mla_attention,
    .route = cpu::route,
    .routed_experts = cpu::routed_experts,
};

constexpr std::array<const HostKernels*, 2> kHostKernels = {&kCpu, &kReference};

class HostBackend final : public Backend {
 public:
  explicit HostBackend(const HostKernels& kernels) : kernels_(kernels) {}
  std::string_view name() const override { return kernels_.name; }

  void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) override {
    kernels_.embed(table, ids, y);
  }
  void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) override {
    kernels_.matmul(weights, x, tokens, y);
  }
  void add(const float* a, const float* b, int64_t n, float* y) override {
    kernels_.add(a, b, n, y);
  }
  void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y) override {
    kernels_.glu(rule, gate, up, n, y);
  }
  void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) override {
    kernels_.sigmoid_gate(x, gate_logits, n, y);
  }
  void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
                float* y) override {
    kernels_.rms_norm(x, weight, tokens, width, epsilon, y);
  }
  void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) override {
    kernels_.hadamard(x, tokens, width, block, y);
  }
  void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                              const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                              float* y) override {
    kernels_.attention_residual_mix(sources, norm, proj, tokens, hidden, epsilon, y);
  }
  void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                  int64_t taps, float* window, float* y) override {
    kernels_.short_conv(x, weight, tokens, channels, taps, window, y);
  }
  void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
           float* o) override {
    kernels_.kda(shape, in, tokens, state, o);
  }
  void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                       int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                       float* y) override {
    kernels_.kda_output_gate(o, norm_weight, gate_logits, tokens, heads, head_dim, epsilon, y);
  }
  void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                     const float* cache, int64_t first_position, int64_t tokens,
                     float* o) override {
    kernels_.mla_attention(shape, q, kv_b, cache, first_position, tokens, o);
  }
  void route(const RouterRule& rule, const float* logits, const float* bias,
             const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
             float* weights, float* scores) override {
    kernels_.route(rule, logits, bias, source_ids, tokens, experts, slots, weights, scores);
  }
  void routed_experts(const RoutedExpertsShape& shape,
                      std::span<const ExpertWeights* const> experts, const float* weights,
                      int64_t k, const float* z, int64_t tokens, float* u) override {
    kernels_.routed_experts(shape, experts, weights, k, z, tokens, u);
  }

 private:
  const HostKernels& kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(std::string_view name) {
  std::string names;
  for (const HostKernels* kernels : kHostKernels) {
    if (kernels->name == name) return std::make_unique<HostBackend>(*kernels);
    names += std::string(kernels->name) + ", ";
  }
  if (name == "cuda") {
#ifdef K3_HAS_CUDA
    return make_cuda_backend({});
#else
    throw Error(
        "--backend is cuda, but this build has no CUDA: no nvcc was found when it was made");
#endif
  }
  throw Error("--backend is ", name, ", expected ", names, "cuda or, for whole packs, auto");
}

}  // namespace k3
