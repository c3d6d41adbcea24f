// The router hash of a checkpoint (schema/router_hash.h): what traces and prune plans call it.
#pragma once

#include <cstdint>

#include "passes/model.h"

namespace k3 {

// Reads every router of the model, 1.2 GB of K3. Throws Error when a shard cannot be read.
uint64_t model_router_hash(const Model& model);

}  // namespace k3
