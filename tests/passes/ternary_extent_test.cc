#include "passes/ternary_extent.h"

#include <gtest/gtest.h>

#include <random>

#include "schema/formats/ternary.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

// What a reader of the pack finds at each place is the code that was put there.
TEST(TernaryExtent, EveryCodeMultiplierAndScaleIsWhereTheLayoutSays) {
  for (const Format format : {Format::kTernary, Format::kTernary2}) {
    const Blocks160 place{format, 5, 333};
    TernaryCodes codes(place.rows, place.cols);
    std::mt19937 random(3);
    const int largest = largest_ternary_code(format);
    for (int8_t& code : codes.codes) {
      code = static_cast<int8_t>(
          static_cast<int>(random() % static_cast<unsigned>(2 * largest + 1)) - largest);
    }
    for (uint8_t& multiplier : codes.multipliers) multiplier = static_cast<uint8_t>(random());
    for (float& scale : codes.row_scales) scale = static_cast<float>(random() % 100) / 7.0F;

    const std::vector<std::byte> bytes = ternary_extent(place, codes);
    ASSERT_EQ(std::ssize(bytes), place.extent_bytes());
    const auto trit = [&](int64_t row, int64_t col, int64_t plane) {
      const auto byte =
          std::to_integer<uint8_t>(bytes[static_cast<size_t>(place.code_offset(row, col, plane))]);
      return decode_trit(byte, trit_place(col));
    };
    for (int64_t row = 0; row < place.rows; ++row) {
      for (int64_t col = 0; col < place.cols; ++col) {
        int code = trit(row, col, 0);
        if (format == Format::kTernary2) code = 3 * code + trit(row, col, 1);
        ASSERT_EQ(code, codes.row_codes(row)[static_cast<size_t>(col)]) << row << ", " << col;
        ASSERT_EQ(
            std::to_integer<uint8_t>(bytes[static_cast<size_t>(place.multiplier_offset(row, col))]),
            codes.row_multipliers(row)[static_cast<size_t>(col / kBlockInputs)]);
      }
      EXPECT_EQ(std::bit_cast<float>(
                    load_little_endian<uint32_t>(bytes.data() + place.row_scale_offset(row))),
                codes.row_scales[static_cast<size_t>(row)]);
    }
  }
}

}  // namespace
}  // namespace k3
