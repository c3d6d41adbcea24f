// A finished matrix of codes as the bytes of its extent.
#pragma once

#include <cstddef>
#include <vector>

#include "passes/ternary_codes.h"
#include "schema/layout.h"

namespace k3 {

// The extent of a ternary or ternary2 matrix at `place`, whose shape the codes have.
std::vector<std::byte> ternary_extent(const Blocks160& place, const TernaryCodes& codes);

}  // namespace k3
