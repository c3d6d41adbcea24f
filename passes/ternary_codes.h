// The finished codes of a matrix in a ternary format: what the solver makes, what the work folder
// keeps, and what encode packs into trits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "schema/error.h"
#include "schema/formats/ternary.h"
#include "schema/layout.h"

namespace k3 {

struct TernaryCodes {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<int8_t> codes;         // [rows, cols], -1..1 for ternary, -4..4 for ternary2
  std::vector<uint8_t> multipliers;  // [rows, blocks_per_row()]
  std::vector<float> row_scales;     // [rows], finite, not negative

  TernaryCodes() = default;
  TernaryCodes(int64_t row_count, int64_t col_count)
      : rows(row_count),
        cols(col_count),
        codes(static_cast<size_t>(rows * cols)),
        multipliers(static_cast<size_t>(rows * blocks_per_row())),
        row_scales(static_cast<size_t>(rows)) {}

  int64_t blocks_per_row() const { return divide_up(cols, kBlockInputs); }

  std::span<int8_t> row_codes(int64_t row) {
    return std::span(codes).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
  }
  std::span<const int8_t> row_codes(int64_t row) const {
    return std::span(codes).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
  }
  std::span<uint8_t> row_multipliers(int64_t row) {
    return std::span(multipliers)
        .subspan(static_cast<size_t>(row * blocks_per_row()),
                 static_cast<size_t>(blocks_per_row()));
  }
  std::span<const uint8_t> row_multipliers(int64_t row) const {
    return std::span(multipliers)
        .subspan(static_cast<size_t>(row * blocks_per_row()),
                 static_cast<size_t>(blocks_per_row()));
  }

  // Row `row` as the encoder wants it: `padded_codes` has blocks_per_row() x 160 entries (padding
  // becomes 0), `block_multipliers` one per block. Returns the row scale.
  float copy_row(int64_t row, std::span<int8_t> padded_codes,
                 std::span<uint8_t> block_multipliers) const {
    const std::span<const int8_t> from = row_codes(row);
    const std::span<const uint8_t> scales = row_multipliers(row);
    K3_CHECK(block_multipliers.size() == scales.size() &&
             padded_codes.size() == scales.size() * static_cast<size_t>(kBlockInputs));
    std::fill(std::copy(from.begin(), from.end(), padded_codes.begin()), padded_codes.end(),
              int8_t{0});
    std::copy(scales.begin(), scales.end(), block_multipliers.begin());
    return row_scales[static_cast<size_t>(row)];
  }

  // Row `row` as the weights a reader of the pack decodes, rounded to float. [cols]
  void decode_row(int64_t row, std::span<float> weights) const {
    K3_CHECK(weights.size() == static_cast<size_t>(cols));
    const std::span<const int8_t> from = row_codes(row);
    const std::span<const uint8_t> scales = row_multipliers(row);
    for (size_t col = 0; col < weights.size(); ++col) {
      weights[col] = static_cast<float>(
          decode_ternary(from[col], scales[col / static_cast<size_t>(kBlockInputs)],
                         row_scales[static_cast<size_t>(row)]));
    }
  }
};

}  // namespace k3
