// What the values of an index must satisfy together, before anything else may rely on them.
//
// The checks trust no earlier reader: they run on every opening, in both programs, and on the plan
// before it is written. At K3's size (82,432 experts, 2,600 tensors) they take about a millisecond.
#pragma once

#include <cstdint>
#include <string>

#include "schema/model_config.h"
#include "schema/pack_frame.h"
#include "schema/pack_index.h"

namespace k3 {

// The greatest dimension of a tensor and the greatest width in a config. With these no product of
// two widths and no extent length can pass 2^63.
inline constexpr int64_t kLargestDim = (int64_t{1} << 31) - 1;
inline constexpr int64_t kLargestWidth = int64_t{1} << 22;

// Every number finite and inside its range. `path` starts the message of the Error thrown.
void check_config(const ModelConfig& config, const std::string& path);

// The features of its frame (pack_frame.h) that a pack of this config must state.
uint64_t demanded_features(const ModelConfig& config);

// That the frame states the features its index demands. Names, shapes, formats, layouts and extent
// lengths of tensors; banks exactly for the MoE layers; side files and reports; and that every
// extent starts at the first multiple of 4096 after its predecessor, the first at 4096, the index
// last. Throws Error with the first fault.
void check_index(const PackFrame& frame, const PackIndex& index, const std::string& path);

}  // namespace k3
