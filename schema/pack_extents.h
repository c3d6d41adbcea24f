// Every extent of a pack in one list: what the reader checks for gaps and overlaps, verify walks
// and inspect counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schema/pack_frame.h"
#include "schema/pack_index.h"

namespace k3 {

enum class ExtentKind : uint8_t { kTensor, kExpert, kSideFile, kReport, kRetired, kIndex };

struct PackExtent {
  Extent extent;
  ExtentKind kind = ExtentKind::kIndex;
  uint32_t item = 0;    // position in tensors, banks, side_files, reports or retired
  uint32_t expert = 0;  // position in the bank
};

// All of them in file order, the index last.
std::vector<PackExtent> list_extents(const PackFrame& frame, const PackIndex& index);

// "tensor NAME", "expert 17 of layer 3", "side file NAME", ... for messages.
std::string describe_extent(const PackIndex& index, const PackExtent& extent);

}  // namespace k3
