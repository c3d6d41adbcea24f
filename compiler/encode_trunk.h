// Encodes one trunk tensor into its extent, a few megabytes of rows at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "compiler/pack_writer.h"
#include "passes/model.h"
#include "passes/solution_store.h"
#include "schema/aligned_bytes.h"

namespace k3 {

struct EncodedHashes {
  uint64_t extent = 0;
  uint64_t source = 0;
  uint64_t untuned = 0;  // of the extent as it would be without its tuning
};

// Streams `tensor` of `model` through its planned format into `writer`. f32 and bf16 are copied
// through `buffer`, unless folding changes their values, which become f32; int8 goes row by row
// through encode_int8_row, a ternary format through round_ternary_row, unless it was solved: then
// its extent comes from `solutions`. Tuned scales and gains take the place of what that gives.
// Calls `on_read` with the bytes of each piece read. Throws Error for a weight that is not finite
// where it must be rounded.
EncodedHashes encode_trunk_tensor(const Model& model, const TrunkTensor& tensor,
                                  const PackWriter& writer, AlignedBytes& buffer,
                                  const SolutionStore* solutions,
                                  const std::function<void(int64_t)>& on_read);

// The bytes of memory that encoding `tensor` takes at most, `buffer` included.
int64_t trunk_buffer_bytes(const TrunkTensor& tensor);

}  // namespace k3
