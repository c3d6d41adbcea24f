// The codes of a matrix in blocks160 as the first bytes of its extent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "schema/layout.h"

namespace k3 {

// The largest code of a format in blocks160; the least is its negative.
int largest_code(Format format);

// Packs one row of codes (blocks x 160 of them, padding 0) into its bytes in each plane of
// `format`, ternary or ternary2; `codes` is used up.
void pack_ternary_row(Format format, std::span<int8_t> codes,
                      std::array<std::span<uint8_t>, 2> planes);

// Packs codes [rows, cols] into the planes of the matrix at `place`: all of its extent that lies
// before the multipliers.
void pack_codes(const Blocks160& place, std::span<const int8_t> codes, std::span<std::byte> planes);

}  // namespace k3
