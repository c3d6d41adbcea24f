// The two levels of scale of blocks160: how a row's scales, any non-negative numbers, become one
// float and a byte each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "schema/error.h"

namespace k3 {

// Rounds the scales of a row's blocks to row_scale x multiplier: the row's largest scale has
// multiplier 255, the others the nearest, ties to even. Returns the row scale, rounded up; 0 when
// all scales are 0. Scales are finite and not negative.
inline float round_block_scales(std::span<const float> scales, std::span<uint8_t> multipliers) {
  constexpr double kLargestMultiplier = 255;
  K3_CHECK(scales.size() == multipliers.size());
  const auto largest = static_cast<double>(*std::max_element(scales.begin(), scales.end()));
  auto row_scale = static_cast<float>(largest / kLargestMultiplier);
  if (static_cast<double>(row_scale) * kLargestMultiplier < largest) {
    row_scale = std::nextafter(row_scale, INFINITY);
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    const double multiplier =
        row_scale > 0 ? std::nearbyint(static_cast<double>(scales[i]) / row_scale) : 0.0;
    K3_CHECK(multiplier >= 0);  // false for a NaN too
    multipliers[i] = static_cast<uint8_t>(std::min(multiplier, kLargestMultiplier));
  }
  return row_scale;
}

// All scales of a matrix as a pack stores them: each row rounded on its own.
struct StoredScales {
  std::vector<uint8_t> multipliers;  // [rows, blocks]
  std::vector<float> row_scales;     // [rows]

  StoredScales() = default;
  StoredScales(std::span<const float> scales, int64_t rows)
      : multipliers(scales.size()), row_scales(static_cast<size_t>(rows)) {
    const size_t blocks = scales.size() / row_scales.size();
    for (size_t row = 0; row < row_scales.size(); ++row) {
      row_scales[row] = round_block_scales(scales.subspan(row * blocks, blocks),
                                           std::span(multipliers).subspan(row * blocks, blocks));
    }
  }
};

}  // namespace k3
