// A finished matrix of codes as the bytes of its extent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "passes/ternary_codes.h"
#include "schema/layout.h"

namespace k3 {

// Packs one row of codes (blocks x 160 of them, padding 0) into its bytes in each plane of
// `format`, ternary or ternary2; `codes` is used up.
void pack_ternary_row(Format format, std::span<int8_t> codes,
                      std::array<std::span<uint8_t>, 2> planes);

// The extent of a ternary or ternary2 matrix at `place`, whose shape the codes have.
std::vector<std::byte> ternary_extent(const Blocks160& place, const TernaryCodes& codes);

}  // namespace k3
