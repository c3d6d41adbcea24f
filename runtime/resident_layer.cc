#include "runtime/resident_layer.h"

#include <algorithm>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr int64_t kLeastRoom = 256;  // positions

int64_t bytes_of(size_t floats) {
  return static_cast<int64_t>(floats * sizeof(float));
}

Floats uploaded(Backend& backend, const std::vector<float>& values) {
  Floats there = make_vector<float>(backend, std::ssize(values));
  if (!values.empty()) backend.upload(values.data(), bytes_of(values.size()), there.data());
  return there;
}

void download(Backend& backend, const Floats& there, std::vector<float>& values) {
  values.resize(there.size());
  if (!values.empty()) backend.download(there.data(), bytes_of(there.size()), values.data());
}

}  // namespace

ResidentLayer::ResidentLayer(Backend& backend, const LayerState& state)
    : backend_(backend),
      q_window_(uploaded(backend, state.q_window)),
      k_window_(uploaded(backend, state.k_window)),
      v_window_(uploaded(backend, state.v_window)),
      kda_(uploaded(backend, state.kda)),
      cache_(uploaded(backend, state.cache)) {}

// Twice as much each time, so that a long sequence moves its cache a few times only.
void ResidentLayer::make_room(int64_t positions, int64_t width) {
  if (width == 0 || positions <= position_room_) return;
  position_room_ = std::max({kLeastRoom, 2 * position_room_, positions});
  Floats larger = make_vector<float>(backend_, position_room_ * width);
  if (!cache_.empty()) backend_.copy(cache_.data(), bytes_of(cache_.size()), larger.data());
  cache_ = std::move(larger);
}

LayerPlaces ResidentLayer::places() {
  return {q_window_.data(), k_window_.data(), v_window_.data(), kda_.data(), cache_.data()};
}

void ResidentLayer::write_back(int64_t positions, int64_t width, LayerState& state) {
  download(backend_, q_window_, state.q_window);
  download(backend_, k_window_, state.k_window);
  download(backend_, v_window_, state.v_window);
  download(backend_, kda_, state.kda);
  if (position_room_ > 0) {
    state.cache.resize(static_cast<size_t>(positions * width));
    backend_.download(cache_.data(), bytes_of(state.cache.size()), state.cache.data());
  }
}

LayerPlaces places_of(LayerState& state, Backend& backend, int64_t positions, int64_t width) {
  if (backend.works_on_host()) {
    K3_CHECK(state.resident == nullptr);
    state.cache.resize(static_cast<size_t>(positions * width));
    return {state.q_window.data(), state.k_window.data(), state.v_window.data(), state.kda.data(),
            state.cache.data()};
  }
  if (state.resident == nullptr) state.resident.reset(new ResidentLayer(backend, state));
  K3_CHECK(&state.resident->backend() == &backend);
  state.resident->make_room(positions, width);
  return state.resident->places();
}

}  // namespace k3
