// Rows of a matrix as floats, from their bytes in the checkpoint: for the pass that looks at values
// and for the encoder that stores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "passes/model.h"
#include "schema/file.h"

namespace k3 {

// Reads and decodes whole rows from `first_row` on into `weights` [rows, cols], as
// decode_weight_row does. Thread-safe. Throws Error.
void read_weight_rows(const TrunkTensor& tensor, const File& shard, int64_t first_row,
                      std::span<float> weights);

// Decodes row `row` of `tensor`, whose `bytes` are f32 or bf16 as in the checkpoint. Throws Error
// that names the first weight that is not finite: no integer format can hold it.
void decode_weight_row(const TrunkTensor& tensor, const File& shard, int64_t row,
                       std::span<const std::byte> bytes, std::span<float> weights);

// The hash of the tensor's bytes in the checkpoint, a few megabytes at a time. Throws Error.
uint64_t hash_source(const TrunkTensor& tensor, const File& shard);

}  // namespace k3
