// The name under which traces and prune plans know a model: a hash of its routers.
//
// A trace is recorded on a pack and spent on a checkpoint, so the name must be the same for both,
// for every trunk format and whichever experts a pack keeps. Router rows and selection biases are
// what all packs of a model hold bit for bit, and what routing depends on first. From a pack the
// hash costs nothing: the index holds its parts.
#pragma once

#include <cstdint>
#include <span>

#include "schema/model_config.h"
#include "schema/pack_index.h"

namespace k3 {

// The XXH3-64 of a layer's gate.weight and gate.e_score_correction_bias as they lie in the
// checkpoint, and as a pack's extents hold them.
struct RouterTensors {
  int64_t layer = 0;
  uint64_t gate_xxh3 = 0;
  uint64_t bias_xxh3 = 0;
};

// `routers` has every layer with experts, ascending.
uint64_t router_hash(const ModelConfig& config, std::span<const RouterTensors> routers);

// The same from a checked index.
uint64_t router_hash(const PackContent& content);

}  // namespace k3
