// From the finished (or half-finished) plan to the index that will describe it.
#pragma once

#include "passes/model.h"
#include "passes/options.h"
#include "passes/pass_results.h"
#include "schema/pack_index.h"

namespace k3 {

// What a pack says made it. No more than name and version: the bytes depend on nothing else.
inline constexpr const char* kCompilerName = "k3c 0.1.0";

// The index of `model` as planned so far. Every extent has its planned length, also before
// assign_offsets, so that reports can count bytes at any stage.
PackIndex planned_index(const Model& model, const PassResults& results, const Options& options);

}  // namespace k3
