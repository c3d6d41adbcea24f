// Whether the scales of experts fit into half a byte each (schema/compact_scales.h).
#pragma once

#include <cstdint>
#include <vector>

#include "passes/model.h"
#include "passes/progress.h"

namespace k3 {

// The source ids, ascending, of the bank's kept experts that do not fit: some scale byte of a
// matrix is not among its least exponent and the 15 above it. Reads the scale planes, in parallel,
// and of the codes only what finding the least exponents takes. Throws Error when a shard cannot be
// read. The bank's format is mxfp4.
std::vector<int32_t> find_compact_misfits(const Model& model, const Bank& bank, Progress& progress);

}  // namespace k3
