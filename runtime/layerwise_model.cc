#include "runtime/layerwise_model.h"

#include "runtime/memory_limit.h"

namespace k3 {

LayerwiseModel::LayerwiseModel(const std::string& pack_path, const std::string& backend,
                               int64_t max_tokens, bool check_hashes)
    : pack_(pack_path),
      backend_(make_backend(backend)),
      weights_(pack_, pack_.config(), check_hashes, Residence::kOnePart, nullptr,
               MissingRule::kNextBest, backend_.get()),
      experts_(pack_, check_hashes),
      forward_(weights_, experts_.cache(), *backend_, max_tokens),
      fresh_(pack_.config()) {}

void LayerwiseModel::hold_layer(int64_t layer) {
  weights_.hold_layer(layer);
  experts_.hold_layer(layer, available_memory_bytes() / 2);
}

}  // namespace k3
