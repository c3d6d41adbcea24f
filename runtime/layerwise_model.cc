#include "runtime/layerwise_model.h"

#include <utility>

#include "runtime/memory_limit.h"

namespace k3 {

LayerwiseModel::LayerwiseModel(const std::string& pack_path, const std::string& backend,
                               int64_t max_tokens, bool check_hashes)
    : LayerwiseModel(pack_path, make_backend(backend), max_tokens, check_hashes) {}

LayerwiseModel::LayerwiseModel(const std::string& pack_path, std::unique_ptr<Backend> backend,
                               int64_t max_tokens, bool check_hashes)
    : pack_(pack_path),
      backend_(std::move(backend)),
      weights_(pack_, pack_.config(), check_hashes, Residence::kOnePart, nullptr,
               MissingRule::kNextBest, backend_.get()),
      experts_(pack_, check_hashes),
      forward_(weights_, experts_.cache(), *backend_, max_tokens) {}

void LayerwiseModel::hold_layer(int64_t layer) {
  hold_layer(layer, available_memory_bytes() / 2);
}

void LayerwiseModel::hold_layer(int64_t layer, int64_t expert_bytes) {
  weights_.hold_layer(layer);
  experts_.hold_layer(layer, expert_bytes);
}

void LayerwiseModel::hold_nothing() {
  weights_.hold_nothing();
  experts_.hold_nothing();
}

}  // namespace k3
