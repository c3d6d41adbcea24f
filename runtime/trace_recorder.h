// Records a routing trace while a model runs: --trace of run, eval and capture.
//
// The forward pass tells what was routed; whose tokens those were, only the program around it
// knows, and says so before it runs them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/generate.h"
#include "schema/pack_reader.h"
#include "schema/trace_writer.h"

namespace k3 {

// In which order layers pass: all of them for some tokens and then the next tokens, or all tokens
// through one layer and then the next layer.
enum class TraceOrder : uint8_t { kTokenMajor, kLayerMajor };

class TraceRecorder final : public RunObserver {
 public:
  // Creates the file. `config` is what runs of `pack` and must outlive this; `masked` says whether
  // a plan keeps experts from being chosen. Throws Error when the file cannot be written or the
  // model has no experts.
  TraceRecorder(const std::string& path, const PackReader& pack, const ModelConfig& config,
                bool masked, TraceOrder order = TraceOrder::kTokenMajor);

  // A document that tokens may belong to; the result is its number in TraceToken::document. Names
  // of domains are cut after 255 bytes.
  uint32_t add_document(TraceDocument document);
  // The tokens that will pass next. One beyond all that were announced is `then`, and those after
  // it have the positions that follow.
  void announce(std::span<const TraceToken> tokens, TraceToken then);

  // Writes what is left and marks the file as complete.
  void finish();

  bool wants_logits() const override { return false; }
  bool wants_experts() const override { return true; }
  void on_layer(int64_t, int64_t, const float*) override {}
  void on_routing(int64_t, int64_t, const int32_t*, const float*) override {}
  void on_logits(int64_t, const float*) override {}
  // Throws Error when the disk refuses a block, and for a backend that gives no norms.
  void on_experts(const RoutedTokens& routed) override;

 private:
  // One layer's columns of the block in progress, [tokens, k] and [tokens, next].
  struct LayerColumns {
    std::vector<uint16_t> ids, next_ids;
    std::vector<float> scores, weights, norms, next_scores;
  };

  void record(const RoutedTokens& routed, int64_t token, LayerColumns& columns);
  const TraceToken& place_of(int64_t token);
  void flush();

  TraceWriter writer_;
  TraceOrder order_;
  std::vector<TraceDocument> documents_;
  std::vector<TraceToken> places_;  // of the tokens from first_place_ on
  int64_t first_place_ = 0;
  TraceToken then_;                    // the place behind them
  std::vector<LayerColumns> columns_;  // by layer of the header; one in layer order
  int64_t layer_ = -1;                 // of the header, that came last
  int64_t first_token_ = 0;            // of the block in progress
  int64_t block_tokens_ = 0;
  int64_t tokens_ = 0;                 // of the whole trace
  std::vector<int32_t> ranked_slots_;  // chosen and next
  std::vector<float> ranked_weights_;
};

}  // namespace k3
