// The layout expert_bands_compact: mxfp4 scales at half a byte each.
//
// Each scale plane of K3's experts (w1, w2, w3 of all 82,432) spans at most 16 consecutive
// exponents, so a scale is the matrix's least exponent, which the index has, plus four bits. That
// saves 2.9 % of an expert without touching a weight. It is a layout for files: kernels read scales
// as bytes, so an expert is brought into expert_bands when it is read, and no kernel and no bit of
// any output knows the difference.
//
// Two consecutive scales of a part share a byte, the first in the low nibble. A matrix fits when
// every one of its scale bytes, those of all-zero groups too, is among its least exponent and the
// 15 above it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "schema/layout.h"

namespace k3 {

inline constexpr int kCompactSpan = 15;              // from the least scale to the greatest
inline constexpr uint8_t kLargestCompactBase = 239;  // so that no nibble passes 254

// Turns an extent of expert_bands_compact into one of expert_bands. `place` is the latter's, `base`
// the least exponents by ExpertMatrix, each at most kLargestCompactBase.
void expand_scales(const ExpertBands& place, const std::array<uint8_t, 3>& base,
                   std::span<const std::byte> compact, std::span<std::byte> expanded);

// Turns one band of expert_bands into one of expert_bands_compact, in place: `band` bytes shrink
// and the result is what they start with. The scales must fit.
std::span<std::byte> compact_band(const ExpertBands& place, int64_t band,
                                  const std::array<uint8_t, 3>& base, std::span<std::byte> bytes);

}  // namespace k3
