// Windows of tokens on their way through a model layer by layer, with the weights of one layer in
// memory at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/forward.h"
#include "runtime/layerwise_model.h"

namespace k3 {

using Windows = std::span<const std::vector<int32_t>>;

class WindowPass {
 public:
  // Embeds the windows, each the beginning of a sequence of its own. They and `model` must outlive
  // this. Windows have at most the model's max_tokens.
  WindowPass(LayerwiseModel& model, Windows windows);

  // Runs all layers. `on_layer`, if it is not empty, is called when a layer's weights have been
  // read, before its first window passes.
  void run_layers(const std::function<void(int64_t layer)>& on_layer);

  int64_t windows() const { return std::ssize(windows_); }
  int64_t tokens(int64_t window) const { return std::ssize(windows_[static_cast<size_t>(window)]); }
  ResidualStream& stream(int64_t window) { return streams_[static_cast<size_t>(window)]; }

 private:
  LayerwiseModel& model_;
  Windows windows_;
  std::vector<ResidualStream> streams_;
};

}  // namespace k3
