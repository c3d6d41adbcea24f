// What a layer remembers of a sequence, where the backend works.
#pragma once

#include <cstdint>

#include "runtime/backend_memory.h"
#include "runtime/sequence_state.h"

namespace k3 {

// Where the parts of a LayerState lie.
struct LayerPlaces {
  float *q_window = nullptr, *k_window = nullptr, *v_window = nullptr;
  float* kda = nullptr;
  float* cache = nullptr;
};

// A LayerState's values in memory of a backend that does not work on the host. The LayerState owns
// it, and must not outlive the backend.
class ResidentLayer {
 public:
  ResidentLayer(Backend& backend, const LayerState& state);

  Backend& backend() const { return backend_; }
  // Room for `positions` entries of `width` floats in the cache; what is there stays.
  void make_room(int64_t positions, int64_t width);
  int64_t position_room() const { return position_room_; }
  LayerPlaces places();
  // Copies the values back to the host's vectors, with `positions` entries of the cache if it has
  // been given room.
  void write_back(int64_t positions, int64_t width, LayerState& state);

 private:
  Backend& backend_;
  Floats q_window_, k_window_, v_window_, kda_, cache_;
  int64_t position_room_ = 0;
};

// The places of `state` for `backend`, with room for `positions` entries of `width` floats in the
// cache if the layer has one (width is 0 otherwise). On the host they are its own vectors; else the
// values move to the backend, unless they are there, and are what counts from then on.
LayerPlaces places_of(LayerState& state, Backend& backend, int64_t positions, int64_t width);

}  // namespace k3
