#include "runtime/window_pass.h"

namespace k3 {

WindowPass::WindowPass(LayerwiseModel& model, Windows windows) : model_(model), windows_(windows) {
  model_.hold_embedding();
  for (const std::vector<int32_t>& window : windows_) {
    streams_.push_back(model_.forward().make_stream());
    model_.forward().embed(window, streams_.back());
  }
}

void WindowPass::run_layers(const std::function<void(int64_t layer)>& on_layer) {
  for (int64_t layer = 0; layer < model_.layers(); ++layer) {
    model_.hold_layer(layer);
    if (on_layer) on_layer(layer);
    for (int64_t window = 0; window < windows(); ++window) {
      LayerState state = fresh_layer_state(model_.config(), layer);
      model_.forward().run_layer(layer, tokens(window), stream(window), 0, state, nullptr);
    }
  }
}

}  // namespace k3
