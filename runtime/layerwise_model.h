// A pack run layer by layer: one layer's weights in memory at a time, whatever the model's size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/backend.h"
#include "runtime/forward.h"
#include "runtime/layer_experts.h"
#include "runtime/weights.h"
#include "schema/pack_reader.h"

namespace k3 {

class LayerwiseModel {
 public:
  // `max_tokens` is the largest chunk that a step is given. Throws Error.
  LayerwiseModel(const std::string& pack_path, const std::string& backend, int64_t max_tokens,
                 bool check_hashes);
  // The same on this backend.
  LayerwiseModel(const std::string& pack_path, std::unique_ptr<Backend> backend, int64_t max_tokens,
                 bool check_hashes);

  const PackReader& pack() const { return pack_; }
  const ModelConfig& config() const { return pack_.config(); }
  int64_t layers() const { return static_cast<int64_t>(config().layers.size()); }
  Forward& forward() { return forward_; }
  const Forward& forward() const { return forward_; }
  Weights& weights() { return weights_; }  // of what is held
  ExpertCache& experts() { return experts_.cache(); }

  // Each frees the weights held before; hold_layer and hold_nothing the experts too.
  void hold_embedding() { weights_.hold_embedding(); }
  void hold_layer(int64_t layer);  // with half of what memory there is for its experts
  void hold_layer(int64_t layer, int64_t expert_bytes);
  void hold_output() { weights_.hold_output(); }  // output mix, norm and head
  void hold_nothing();

  int64_t bytes_read() const { return weights_.bytes_read() + experts_.bytes_read(); }

 private:
  PackReader pack_;
  std::unique_ptr<Backend> backend_;
  Weights weights_;
  LayerExperts experts_;
  Forward forward_;
};

}  // namespace k3
