// A model run layer by layer: all tokens of a text pass one layer before the next one is read.
//
// That turns the question of how long a text takes around. Token by token, every token streams the
// whole model from disk when memory does not hold it; layer by layer the model is read once,
// however many tokens there are, and what must be kept is the residual stream of every token. The
// bits are those of Forward::run: the steps are the same, and no step sees more than its own layer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/capture_forecast.h"
#include "runtime/capture_text.h"
#include "runtime/forward.h"
#include "runtime/input_recorder.h"
#include "runtime/layerwise_model.h"
#include "runtime/stream_spill.h"
#include "runtime/trace_recorder.h"
#include "schema/pack_reader.h"

namespace k3 {

struct LayerMajorOptions {
  std::string pack_path;
  std::string name;  // of its files in the work folder
  std::string backend = "cpu";
  int64_t chunk_tokens = 256;  // most tokens that pass a layer together
  bool verify = true;          // check hashes of what is read
};

class LayerMajorModel {
 public:
  // Opens and checks the pack; reads no weight. Throws Error.
  explicit LayerMajorModel(const LayerMajorOptions& options);

  const PackReader& pack() const { return model_.pack(); }
  const ModelConfig& config() const { return model_.config(); }

  // The memory that passing `layer` takes: with room for all its experts, or for as many as one
  // token needs, in which case experts are read again and again. Without the recorder's rows.
  int64_t layer_bytes(int64_t layer, int64_t longest_sequence, bool all_experts) const;

  // The stages of a pass over `text`, in this order, each after the one before it was finished, if
  // not by this program then by an earlier one. Streams lie in `folder`. `cost` is added to.
  void embed(const CaptureText& text, const std::string& folder, CaptureCost& cost);
  // `recorder` and `trace` may be null. `memory_bytes` is at least layer_bytes(layer, ..., false).
  void run_layer(int64_t layer, const CaptureText& text, InputRecorder* recorder,
                 TraceRecorder* trace, int64_t memory_bytes, CaptureCost& cost);
  // Calls `on_logits` for each token in the order of the sequences, when it is not empty.
  using OnLogits = std::function<void(int64_t document, int32_t id, const float* logits)>;
  void finish(const CaptureText& text, InputRecorder* recorder, const OnLogits& on_logits,
              CaptureCost& cost);

  // Needed before run_layer and finish when embed was done by an earlier program.
  void open_streams(const CaptureText& text, const std::string& folder);
  // Once it is recorded that the stage is finished: removes what only that stage read.
  void drop_input() const { streams_->drop_input(); }
  // Frees the layer's weights.
  void release() { model_.hold_nothing(); }

 private:
  template <class Read>
  void timed_read(const Read& read, CaptureCost& cost);
  template <class Work>
  void for_each_chunk(const CaptureText& text, const Work& work) const;

  LayerwiseModel model_;
  std::string name_;
  ResidualStream stream_;
  std::unique_ptr<StreamSpill> streams_;
};

}  // namespace k3
