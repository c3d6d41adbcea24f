// The forward pass: tokens in, logits out, one sequence state advanced. forward.cc is the model,
// readable top to bottom.
//
// run() is token-major: all layers for a few tokens. The steps it consists of are public, so that a
// program may go layer-major: one layer for all tokens, the streams between layers in its own
// hands. Both give the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/backend.h"
#include "runtime/backend_memory.h"
#include "runtime/expert_cache.h"
#include "runtime/resident_layer.h"
#include "runtime/sequence_state.h"
#include "runtime/weights.h"
#include "schema/matrix_inputs.h"

namespace k3 {

// What a layer adds to the stream: one attention, and a dense FFN or shared and routed experts.
enum class Branch : uint8_t { kKda, kMla, kDense, kShared, kRouted };

// What an MoE layer decided for some tokens, and how much its experts said.
struct RoutedTokens {
  int64_t layer = 0;
  int64_t tokens = 0;
  std::span<const int32_t> source_ids;  // [experts]: of the bank's positions
  const float* score_bias = nullptr;    // [experts]
  const float* scores = nullptr;        // [tokens, experts], without the bias
  const int32_t* slots = nullptr;       // [tokens, k]: positions in the bank; -1: none
  const float* weights = nullptr;       // [tokens, k]
  const float* norms = nullptr;         // [tokens, k]: of the experts' outputs, unweighted
};

// Sees what passes by; the pointers are good during the call.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // The residual stream after layer `layer`: [tokens, hidden].
  virtual void on_layer(int64_t layer, int64_t tokens, const float* hidden) = 0;
  // The chosen experts of MoE layer `layer` by source id (-1: none) and their weights: [tokens, k].
  virtual void on_routing(int64_t layer, int64_t tokens, const int32_t* source_ids,
                          const float* weights) = 0;
  // What a branch of `layer` adds to the stream: [tokens, hidden].
  virtual void on_branch(int64_t /*layer*/, Branch /*branch*/, int64_t /*tokens*/,
                         const float* /*y*/) {}
  // What the matrices of `layer` that share this input are about to multiply: `tokens` rows of
  // `width` values, `stride` values apart.
  virtual void on_matrix_input(int64_t /*layer*/, MatrixInput /*input*/, int64_t /*tokens*/,
                               int64_t /*width*/, int64_t /*stride*/, const float* /*x*/) {}
  // After the layer's experts, for those who ask; asking changes no bit of a result.
  virtual bool wants_experts() const { return false; }
  virtual void on_experts(const RoutedTokens& /*routed*/) {}
};

// What passes from one layer to the next, [tokens, hidden] each.
struct ResidualStream {
  std::vector<float> prefix;
  std::vector<std::vector<float>>
      snapshots;               // as many as the model can have; of attention residuals
  int64_t live_snapshots = 0;  // the first so many are set
};

class Forward {
 public:
  // `max_tokens` is the largest chunk one call of run() may be given; buffers are made for it.
  // `prefetch_experts` of each next layer are read before its router asks for them, where the cache
  // does not hold all.
  Forward(const Weights& weights, ExpertCache& experts, Backend& backend, int64_t max_tokens,
          int64_t prefetch_experts = 0);

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  int64_t max_tokens() const { return max_tokens_; }
  int64_t buffer_bytes() const;  // of memory that the buffers for a chunk take

  // Passes ids.size() tokens through the model and advances `state`. Logits of every token go to
  // `logits` [tokens, vocab] when it is not null; those of the last one always go to
  // state.last_logits. How a prompt is cut into calls does not change any bit of a result. Throws
  // Error for an id outside the vocabulary, and naming the layer after which a value was not
  // finite.
  void run(std::span<const int32_t> ids, SequenceState& state, float* logits = nullptr,
           ForwardObserver* observer = nullptr);

  // The steps of run(). A stream is for up to max_tokens() tokens.
  ResidualStream make_stream() const;
  void embed(std::span<const int32_t> ids, ResidualStream& stream);
  // `state` is the layer's own, of the sequence whose `first_position` tokens it has seen.
  void run_layer(int64_t layer, int64_t tokens, ResidualStream& stream, int64_t first_position,
                 LayerState& state, ForwardObserver* observer);
  // The head's input of each token, [tokens, hidden], where the backend works, good until the next
  // step.
  const float* finish(int64_t tokens, ResidualStream& stream, ForwardObserver* observer);
  // y [tokens, vocab], on the host, = the logits of head inputs x [tokens, hidden].
  void multiply_head(const float* x, int64_t tokens, float* y);

 private:
  // Rows for up to max_tokens tokens, named by what they hold; where the backend works.
  struct Buffers {
    Floats prefix;                                     // [d], with the snapshots: the stream of
    std::vector<Floats> snapshots;                     // run(), or a copy of the caller's
    Floats mixed, normed, branch;                      // [d]
    Floats q, k, v, conv;                              // [widest projection]
    Floats gate, attended;                             // [widest projection]
    Floats rank, decay, beta;                          // low-rank intermediates, [H D], [H]
    Floats ffn_gate, ffn_up;                           // [widest MLP]
    Floats latent, routed, shared;                     // [l], [l], [d]
    Floats router_logits;                              // [experts]
    Floats route_weights;                              // [k]
    Floats route_scores;                               // [experts], for observers
    BackendVector<int32_t> route_slots;                // [k]
    Floats guess_normed, guess_logits, guess_weights;  // [d], [experts], [prefetch_experts_]
    BackendVector<int32_t> guess_slots;                // [prefetch_experts_], of one token
    Floats logits;                                     // [vocab], of as many as were asked for
  };
  // Copies on the host of what lies elsewhere, and what only observers are shown.
  struct HostBuffers {
    std::vector<float> shown, weights;
    std::vector<int32_t> slots, guessed;
    std::vector<int32_t> source_ids;  // [k]
    std::vector<float> expert_norms;  // [k]
  };

  // A stream where the backend works.
  struct StreamPlaces {
    float* prefix = nullptr;
    std::vector<float*> snapshots;
    int64_t live_snapshots = 0;
  };

  StreamPlaces own_stream();
  StreamPlaces bring(ResidualStream& stream, int64_t tokens);
  void give_back(const StreamPlaces& places, int64_t tokens, ResidualStream& stream);
  void check_ids(std::span<const int32_t> ids) const;
  LayerPlaces places_of_layer(int64_t layer, int64_t positions, LayerState& state);
  float* logits_room(int64_t tokens);
  void run_steps(std::span<const int32_t> ids, SequenceState& state, int64_t logits_of,
                 ForwardObserver* observer);
  void run_layer(int64_t layer, int64_t tokens, StreamPlaces& stream, int64_t first_position,
                 const LayerPlaces& state, ForwardObserver* observer);
  const float* finish(int64_t tokens, const StreamPlaces& stream, ForwardObserver* observer);
  const float* mix_residual(const StreamPlaces& stream, const float* norm, const float* proj,
                            int64_t tokens);
  void kda_attention(const KdaWeights& w, int64_t tokens, const LayerPlaces& state);
  void mla_attention(const MlaWeights& w, int64_t tokens, int64_t first_position,
                     const LayerPlaces& state);
  void mlp(const MlpWeights& w, int64_t block, int64_t tokens, const float* x, float* y);
  // To the observer of the running step, if it has one.
  void show_branch(Branch branch, int64_t tokens, const float* y);
  void show_input(MatrixInput input, int64_t tokens, int64_t width, const float* x, int64_t stride);
  template <class T>
  const T* on_host(const T* values, int64_t count, std::vector<T>& copy) const;
  void mixture_of_experts(const MoeWeights& w, int64_t layer, int64_t tokens,
                          const StreamPlaces& stream, ForwardObserver* observer);
  void drop_choices(const MoeWeights& w, int64_t tokens);
  void prefetch_experts(int64_t layer, int64_t tokens, const StreamPlaces& stream);
  int64_t request_experts(const MoeWeights& w, const int32_t* slots, int64_t begin, int64_t tokens);
  void run_experts(const MoeWeights& w, const int32_t* slots, int64_t tokens, int64_t requested,
                   const float* z, float* norms);
  RoutedExpertsShape experts_shape(const MoeWeights& w) const;
  void rotate(float* x, int64_t tokens, int64_t width, int64_t block);
  void check_finite(const float* values, int64_t count, int64_t layer);
  void check_found(const std::optional<NotFinite>& found) const;

  const Weights& weights_;
  const ModelConfig& config_;
  const RotatedBasis basis_;  // blocks of 1 for a model that is not rotated
  ExpertCache& experts_;
  Backend& backend_;
  int64_t max_tokens_;
  int64_t prefetch_experts_;
  Buffers buffers_;
  HostBuffers host_;
  ForwardObserver* observer_ = nullptr;
  int64_t layer_ = 0;  // of the running step
};

// `values` themselves where they lie on the host, else `copy`, which receives them.
template <class T>
const T* Forward::on_host(const T* values, int64_t count, std::vector<T>& copy) const {
  if (backend_.works_on_host()) return values;
  copy.resize(static_cast<size_t>(count));
  backend_.download(values, count * int64_t{sizeof(T)}, copy.data());
  return copy.data();
}

}  // namespace k3
