// How many bytes an item of the plan will have in the pack.
#pragma once

#include <cstdint>

#include "passes/model.h"
#include "schema/layout.h"

namespace k3 {

// The extent's length under the planned format and layout.
inline int64_t planned_bytes(const TrunkTensor& tensor) {
  if (tensor.layout == Layout::kBlocks160) {
    return Blocks160{tensor.shape[0], tensor.shape[1]}.extent_bytes();
  }
  return packed_row_bytes(tensor.format, tensor.shape.elements().value_or(0));
}

// Where the matrices of the bank's experts lie in their extents.
inline ExpertBands bank_bands(const ModelConfig& config, const Bank& bank) {
  return {bank.format, config.expert_width(), config.expert_intermediate_size};
}

}  // namespace k3
