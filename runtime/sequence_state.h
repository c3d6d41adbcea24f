// What one sequence remembers between tokens: KDA matrices and convolution windows, and the MLA
// cache.
//
// KDA state exists only at the position it stands at: it cannot be cut back to a shorter prefix, so
// a state is either continued or thrown away. Attention-residual snapshots live within one pass
// over the layers and are not part of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schema/model_config.h"

namespace k3 {

class ResidentLayer;
struct LayerState;

// Owns a ResidentLayer or nothing. A state that is away on a device cannot be copied.
class ResidentHandle {
 public:
  ResidentHandle();
  ResidentHandle(const ResidentHandle& other);
  ResidentHandle(ResidentHandle&& other) noexcept;
  ResidentHandle& operator=(ResidentHandle other) noexcept;
  ~ResidentHandle();

  void reset(ResidentLayer* layer);
  // Back into the vectors of `state`, whose handle this is: with `positions` entries of `width`
  // floats of a cache, if the layer has one.
  void bring_home(int64_t positions, int64_t width, LayerState& state);
  ResidentLayer* operator->() const { return layer_.get(); }
  friend bool operator==(const ResidentHandle& handle, std::nullptr_t) {
    return handle.layer_ == nullptr;
  }

 private:
  std::unique_ptr<ResidentLayer> layer_;
};

struct LayerState {
  // KDA, all zero at the start
  std::vector<float> q_window, k_window, v_window;  // [taps - 1, H D], oldest first
  std::vector<float> kda;                           // [H, D, D]: key, value
  // MLA
  std::vector<float>
      cache;  // [positions, latent + extra]: normed latent, then the shared extra part
  // When not null, the values are there and the vectors are out of date (resident_layer.h).
  ResidentHandle resident;
};

// Of a sequence that has seen nothing.
LayerState fresh_layer_state(const ModelConfig& config, int64_t layer);

struct SequenceState {
  explicit SequenceState(const ModelConfig& config);

  int64_t positions() const { return static_cast<int64_t>(ids.size()); }

  // Brings what a device holds back into the vectors of `layers`.
  void bring_home(const ModelConfig& config);

  std::vector<int32_t> ids;        // every token that went through, in order
  std::vector<float> last_logits;  // [vocab] after the last token; empty before the first
  std::vector<LayerState> layers;
};

// Writes the state, which is at home, as a safetensors file whose metadata names the pack by
// payload hash and carries a hash of the data. Written to a neighbour and renamed. Throws Error.
void save_state(const SequenceState& state, const ModelConfig& config, uint64_t payload_xxh3,
                const std::string& path);

// Reads a state that save_state wrote for a pack of that payload. Throws Error for another pack, a
// wrong shape or damage.
SequenceState load_state(const ModelConfig& config, uint64_t payload_xxh3, const std::string& path);

}  // namespace k3
