// The forward pass: tokens in, logits out, one sequence state advanced. forward.cc is the model,
// readable top to bottom.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/backend.h"
#include "runtime/expert_cache.h"
#include "runtime/sequence_state.h"
#include "runtime/weights.h"

namespace k3 {

// Sees what passes by; the pointers are good during the call.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // The residual stream after layer `layer`: [tokens, hidden].
  virtual void on_layer(int64_t layer, int64_t tokens, const float* hidden) = 0;
  // The chosen experts of MoE layer `layer` by source id (-1: none) and their weights: [tokens, k].
  virtual void on_routing(int64_t layer, int64_t tokens, const int32_t* source_ids,
                          const float* weights) = 0;
};

class Forward {
 public:
  // `max_tokens` is the largest chunk one call of run() may be given; buffers are made for it.
  Forward(const Weights& weights, ExpertCache& experts, Backend& backend, int64_t max_tokens);

  const ModelConfig& config() const { return config_; }
  int64_t max_tokens() const { return max_tokens_; }

  // Passes ids.size() tokens through the model and advances `state`. Logits of every token go to
  // `logits` [tokens, vocab] when it is not null; those of the last one always go to
  // state.last_logits. How a prompt is cut into calls does not change any bit of a result. Throws
  // Error for an id outside the vocabulary, and naming the layer after which a value was not
  // finite.
  void run(std::span<const int32_t> ids, SequenceState& state, float* logits = nullptr,
           ForwardObserver* observer = nullptr);

 private:
  // Rows for up to max_tokens tokens, named by what they hold.
  struct Buffers {
    std::vector<float> prefix;                           // [d]: the residual stream
    std::vector<float> mixed, normed, branch;            // [d]
    std::vector<float> q, k, v, conv;                    // [widest projection]
    std::vector<float> gate, attended;                   // [widest projection]
    std::vector<float> rank, decay, beta;                // low-rank intermediates, [H D], [H]
    std::vector<float> ffn_gate, ffn_up;                 // [widest MLP]
    std::vector<float> latent, routed, shared;           // [l], [l], [d]
    std::vector<float> router_logits;                    // [experts]
    std::vector<float> route_weights;                    // [k]
    std::vector<int32_t> route_slots, route_source_ids;  // [k]
    std::vector<std::vector<float>> snapshots;  // [d] each; the first `live_snapshots` are set
  };

  void run_layer(int64_t layer, int64_t tokens, SequenceState& state, ForwardObserver* observer);
  const float* mix_residual(const float* norm, const float* proj, int64_t tokens);
  void kda_attention(const KdaWeights& w, int64_t tokens, LayerState& state);
  void mla_attention(const MlaWeights& w, int64_t tokens, int64_t first_position,
                     LayerState& state);
  void mlp(const MlpWeights& w, int64_t block, int64_t tokens, const float* x, float* y);
  void mixture_of_experts(const MoeWeights& w, int64_t layer, int64_t tokens,
                          ForwardObserver* observer);
  void run_experts(const MoeWeights& w, int64_t tokens, const float* z);
  void rotate(float* x, int64_t tokens, int64_t width, int64_t block);
  void check_finite(const float* values, int64_t count, int64_t layer) const;

  const Weights& weights_;
  const ModelConfig& config_;
  const RotatedBasis basis_;  // blocks of 1 for a model that is not rotated
  ExpertCache& experts_;
  Backend& backend_;
  int64_t max_tokens_;
  Buffers buffers_;
  size_t live_snapshots_ = 0;
};

}  // namespace k3
