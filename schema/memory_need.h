// How much memory running a pack takes, known from its index alone: what `k3c compile` predicts and
// what k3exec then allocates.
//
// Besides these a program needs buffers for the tokens in flight (one chunk of prompt through the
// widest layer: about 0.1 GB at K3's widths and 64 tokens), the vocabulary and itself.
#pragma once

#include <cstdint>

#include "schema/pack_index.h"

namespace k3 {

struct MemoryNeed {
  int64_t weights_bytes = 0;       // all but the routed experts, as Weights holds them
  int64_t least_expert_bytes = 0;  // the experts that one token asks of one layer
  int64_t all_expert_bytes = 0;    // of every bank, without cold ones
  int64_t state_bytes = 0;         // one sequence: KDA states and windows
  int64_t position_bytes = 0;      // and on top for each position: MLA caches

  int64_t least_bytes() const { return weights_bytes + least_expert_bytes + state_bytes; }
  int64_t all_bytes() const { return weights_bytes + all_expert_bytes + state_bytes; }
};

// `content` must have passed check_index, its hashes aside.
MemoryNeed memory_need(const PackContent& content);

// Bytes that an expert of the bank takes in memory: whole pages, as direct reads need them.
int64_t expert_slot_bytes(const ModelConfig& config, const PackBank& bank);

// Bytes of a tensor in memory: matrices as they lie in the pack, vectors and convolutions widened
// to float.
int64_t resident_bytes(const PackTensor& tensor);

}  // namespace k3
