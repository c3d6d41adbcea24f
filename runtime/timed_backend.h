// A backend that runs another one and keeps, per operation, how long it took and how many bytes it
// had to read. On a device it waits for each operation, so the sum is more than an untimed pass.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/backend.h"

namespace k3 {

struct OperationCost {
  int64_t calls = 0;
  double seconds = 0;
  int64_t bytes = 0;    // weights, states and caches that the operation cannot avoid reading;
                        // activations are not counted
  int64_t weights = 0;  // of a product with a matrix or of experts, else 0
  Format format = Format::kF32;  // the weights'
};

// One cost per operation and format, e.g. "matmul bf16".
using OperationCosts = std::map<std::string, OperationCost>;

// `inner` must outlive it.
class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(Backend& inner) : inner_(inner) {}

  const OperationCosts& costs() const { return costs_; }
  void reset() { costs_.clear(); }

  std::string_view name() const override { return inner_.name(); }
  bool works_on_host() const override { return inner_.works_on_host(); }
  void* allocate(int64_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory) override { inner_.release(memory); }
  void copy(const void* src, int64_t bytes, void* dst) override { inner_.copy(src, bytes, dst); }
  void upload(const void* host, int64_t bytes, void* dst) override {
    inner_.upload(host, bytes, dst);
  }
  void download(const void* src, int64_t bytes, void* host) override {
    inner_.download(src, bytes, host);
  }
  void finish() override { inner_.finish(); }
  std::optional<double> read_bandwidth() override { return inner_.read_bandwidth(); }
  std::optional<NotFinite> run_pass(const Pass& pass,
                                    const std::function<void()>& operations) override;
  std::optional<NotFinite> find_not_finite(const float* values, int64_t count,
                                           int64_t place) override {
    return inner_.find_not_finite(values, count, place);
  }
  int64_t take_experts(const PackReader& pack, const ModelConfig& config, int64_t host_bytes,
                       bool check_hashes, bool with_cold) override {
    return inner_.take_experts(pack, config, host_bytes, check_hashes, with_cold);
  }
  bool holds_experts() const override { return inner_.holds_experts(); }
  void run_bank(const PackBank& bank, const RoutedExpertsShape& shape, const int32_t* slots,
                const float* weights, int64_t k, const float* z, int64_t tokens, float* u) override;
  void append_to_cache(const float* entries, int64_t tokens, int64_t width, int64_t first_position,
                       float* cache) override {
    inner_.append_to_cache(entries, tokens, width, first_position, cache);
  }

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

 private:
  template <class Call>
  void timed(const std::string& operation, int64_t bytes, const Call& call);
  template <class Call>
  void timed_product(const std::string& operation, Format format, int64_t bytes, int64_t weights,
                     const Call& call);

  Backend& inner_;
  OperationCosts costs_;
};

}  // namespace k3
