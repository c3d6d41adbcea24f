// A pack run layer by layer: one layer's weights in memory at a time, whatever the model's size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/backend.h"
#include "runtime/forward.h"
#include "runtime/layer_experts.h"
#include "runtime/sequence_state.h"
#include "runtime/weights.h"
#include "schema/pack_reader.h"

namespace k3 {

class LayerwiseModel {
 public:
  // `max_tokens` is the largest chunk that a step is given. Throws Error.
  LayerwiseModel(const std::string& pack_path, const std::string& backend, int64_t max_tokens,
                 bool check_hashes);

  const PackReader& pack() const { return pack_; }
  const ModelConfig& config() const { return pack_.config(); }
  int64_t layers() const { return static_cast<int64_t>(config().layers.size()); }
  Forward& forward() { return forward_; }

  // Each frees what was held before.
  void hold_embedding() { weights_.hold_embedding(); }
  void hold_layer(int64_t layer);

  // What `layer` remembers before the first token.
  const LayerState& fresh_state(int64_t layer) const {
    return fresh_.layers[static_cast<size_t>(layer)];
  }

 private:
  PackReader pack_;
  std::unique_ptr<Backend> backend_;
  Weights weights_;
  LayerExperts experts_;
  Forward forward_;
  SequenceState fresh_;
};

}  // namespace k3
