// Turns a finished plan into bytes: the last step of a compile, and the only one that reads
// weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compiler/encode_journal.h"
#include "compiler/pack_writer.h"
#include "passes/model.h"
#include "passes/pass_results.h"
#include "passes/progress.h"
#include "passes/solution_store.h"

namespace k3 {

// The items that a journal of this plan counts: trunk tensors and experts, kept or left out.
size_t encode_items(const Model& model);

// The bytes of memory that each worker of encode() takes.
int64_t encode_worker_bytes(const Model& model);

// What was taken over from a compile that had been killed.
struct EncodeSummary {
  int64_t resumed_extents = 0;
  int64_t resumed_bytes = 0;
  int64_t damaged_extents = 0;  // claimed, but with other bytes; encoded again
};

// Encodes every extent of `model` and `results` at its place in `writer`, by `workers` workers, and
// fills in the hashes, least exponents and fixed points. Solved tensors come from `solutions`. The
// bytes do not depend on the number of workers, nor on what was taken over. Throws Error.
EncodeSummary encode(Model& model, PassResults& results, const PackWriter& writer,
                     EncodeJournal& journal, Progress& progress, int64_t workers,
                     const SolutionStore* solutions = nullptr);

}  // namespace k3
