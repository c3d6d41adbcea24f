// Rounding made weights to MXFP4 as the released experts are rounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace k3 {

// Rounds 32 finite weights to codes [16] (low nibble first) and returns their scale byte: the
// smallest power of two under which none is above 6. The largest always becomes 4 or 6, so a
// group's maximum lies in (3, 6] times its scale as in the release. Small negative weights become
// negative zero.
uint8_t quantize_mxfp4_group(std::span<const float> weights, std::span<std::byte> codes);

// The standard deviation for Gaussian weights, nearest to `wanted`, under which the scales are
// spread as in the release: 1.575 times a power of two.
float natural_mxfp4_deviation(float wanted);

}  // namespace k3
