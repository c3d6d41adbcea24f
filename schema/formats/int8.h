// int8: weight = row_scale x multiplier x code; codes -127..127, a u8 multiplier per 160 inputs,
// one f32 scale per row.
//
// Two levels of scale keep the stored rate at 8 + 8/160 + 32/cols bits while the inner sums stay
// integers: the multiplier enters the exact accumulation as an integer, and the one float, the row
// scale, is applied once at the end. -128 is not a code: byte tricks (psignb) treat it differently,
// and the range is symmetric without it.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "schema/host_device.h"

namespace k3 {

inline constexpr int64_t kBlockInputs =
    160;  // inputs that share a multiplier, for int8 and the ternary formats

// Exact in double for any row scale: 24 + 8 + 7 bits.
K3_HOST_DEVICE inline double decode_int8(int8_t code, uint8_t multiplier, float row_scale) {
  return static_cast<double>(row_scale) * (static_cast<int>(multiplier) * static_cast<int>(code));
}

// Encodes one row of `weights`. `codes` has ceil(cols / 160) x 160 entries (padding becomes 0),
// `multipliers` one per block. Returns the row scale: max|w| / (255 x 127) rounded up, so that no
// code needs clamping; 0 for an all-zero row. The multiplier of a block is the least that covers
// the block's largest weight. Non-finite weights are the caller's error.
inline float encode_int8_row(std::span<const float> weights, std::span<int8_t> codes,
                             std::span<uint8_t> multipliers) {
  double row_max = 0;
  for (float weight : weights) row_max = std::fmax(row_max, std::fabs(static_cast<double>(weight)));
  auto row_scale = static_cast<float>(row_max / (255.0 * 127.0));
  if (static_cast<double>(row_scale) * (255.0 * 127.0) < row_max) {
    row_scale = std::nextafter(row_scale, INFINITY);
  }
  const auto scale = static_cast<double>(row_scale);
  for (size_t block = 0; block < multipliers.size(); ++block) {
    const size_t begin = block * kBlockInputs;
    const size_t end = begin + kBlockInputs;
    double block_max = 0;
    for (size_t i = begin; i < end && i < weights.size(); ++i) {
      block_max = std::fmax(block_max, std::fabs(static_cast<double>(weights[i])));
    }
    const double multiplier = row_scale > 0 ? std::ceil(block_max / (scale * 127.0)) : 0.0;
    multipliers[block] = static_cast<uint8_t>(std::fmin(multiplier, 255.0));
    for (size_t i = begin; i < end; ++i) {
      double code = 0;
      if (i < weights.size() && multipliers[block] != 0) {
        code = std::nearbyint(static_cast<double>(weights[i]) / (scale * multipliers[block]));
      }
      codes[i] = static_cast<int8_t>(std::fmax(-127.0, std::fmin(127.0, code)));
    }
  }
  return row_scale;
}

}  // namespace k3
