// Turns a finished plan into bytes: the last step of a compile, and the only one that reads
// weights.
#pragma once

#include <cstdint>

#include "compiler/pack_writer.h"
#include "passes/model.h"
#include "passes/pass_results.h"
#include "passes/progress.h"

namespace k3 {

// Encodes every extent of `model` and `results` at its place in `writer`, in parallel, and fills in
// the hashes, least exponents and fixed points. The bytes do not depend on the number of threads.
// Throws Error.
void encode(Model& model, PassResults& results, const PackWriter& writer, Progress& progress);

}  // namespace k3
