// What a planned item may become and how many bytes it will have in the pack.
#pragma once

#include <cstdint>

#include "passes/model.h"
#include "schema/layout.h"

namespace k3 {

// Whether a tensor may leave its source precision. The importer marks the trunk's matrices; the
// head may too, but only by its own option, so it is not among them.
inline bool may_be_quantized(const TrunkTensor& tensor) {
  return tensor.may_quantize || tensor.family == Family::kHead;
}

// What stores a tensor without loss; folding makes floats, which bf16 would round.
inline Format source_format(const TrunkTensor& tensor) {
  const bool is_f32 = tensor.dtype == Dtype::kF32 || tensor.folding.changes_values();
  return is_f32 ? Format::kF32 : Format::kBf16;
}

// Whether the plan stores it in trits.
inline bool is_ternary(const TrunkTensor& tensor) {
  return tensor.format == Format::kTernary || tensor.format == Format::kTernary2;
}

// The extent's length under the planned format and layout.
inline int64_t planned_bytes(const TrunkTensor& tensor) {
  if (tensor.layout == Layout::kBlocks160) {
    return Blocks160{tensor.format, tensor.shape[0], tensor.shape[1]}.extent_bytes();
  }
  return packed_row_bytes(tensor.format, tensor.shape.elements().value_or(0));
}

// Where the matrices of the bank's experts lie in their extents.
inline ExpertBands bank_bands(const ModelConfig& config, const Bank& bank) {
  return {bank.format, config.expert_width(), config.expert_intermediate_size, bank.layout};
}

}  // namespace k3
