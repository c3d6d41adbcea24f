// A backend that runs another one and writes down each operation, to play them backwards: the
// gradient of whatever the forward pass computes.
//
// The forward pass is a list of calls on a backend, so its derivative needs no second description
// of the architecture: every family, rotation and missing part is followed as it runs. A gradient
// belongs to the memory that held the value. Going backwards, an operation first takes the gradient
// of what it wrote, which leaves none, then adds to those of what it read; so a buffer that was
// used for many values in turn, or written in place, needs no names.
//
// For fresh sequences on the host: states before the first token are zero and have no gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/backend.h"

namespace k3 {

class GradientTape final : public Backend {
 public:
  // Throws Error when `inner` does not work on the host.
  explicit GradientTape(std::unique_ptr<Backend> inner);
  ~GradientTape() override;

  // Drops what is written down and all gradients, then writes down what runs until play_back() or
  // the next start().
  void start();
  // The gradient of `count` values that lie at `values`, and lay there when the last of their
  // operations had run; zeros until something is written into it or played back.
  std::span<float> gradient(const float* values, int64_t count);
  // From the last operation to the first. What operations have read, experts included, is still
  // where it was, but for activations, of which the tape has copies.
  void play_back();

  // What play_back() adds to besides: the gradient of the block scales of the matrix with these
  // codes, [rows, blocks], or of all its weights, [rows, cols], or of a norm's gain, [width]. They
  // stay until forget_parameters().
  void collect_scales(const MatrixView& matrix, float* gradient);
  void collect_weights(const MatrixView& matrix, float* gradient);
  void collect_gain(const float* gain, float* gradient);
  void forget_parameters();

  std::string_view name() const override { return inner_->name(); }
  void* allocate(int64_t bytes) override { return inner_->allocate(bytes); }
  void release(void* memory) override { inner_->release(memory); }
  void copy(const void* src, int64_t bytes, void* dst) override;
  void upload(const void* host, int64_t bytes, void* dst) override;
  void download(const void* src, int64_t bytes, void* host) override;
  void append_to_cache(const float* entries, int64_t tokens, int64_t width, int64_t first_position,
                       float* cache) override;

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
  using Values = std::vector<float>;
  // Gradients of one run of values in memory.
  struct Region {
    int64_t count = 0;
    Values gradients;
  };

  template <class Backward>
  void write_down(Backward backward) {
    if (is_recording_) steps_.emplace_back(std::move(backward));
  }
  Values keep(const float* values, int64_t count) const;
  float* place(const float* values, int64_t count);
  void make_places(std::initializer_list<std::pair<const float*, int64_t>> ranges);
  Values take(const float* values, int64_t count);
  void give(const Values& gradients, const float* values);
  float* parameter(const void* address) const;

  std::unique_ptr<Backend> inner_;
  bool is_recording_ = false;
  std::vector<std::function<void()>> steps_;
  std::map<const float*, Region> regions_;    // by the address of their first value; disjoint
  std::map<const void*, float*> parameters_;  // scales and gains
  std::map<const void*, float*> weights_;
};

}  // namespace k3
