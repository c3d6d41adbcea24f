#include "schema/formats/block_scales.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace k3 {
namespace {

TEST(BlockScales, StoredScalesComeBackAsTheyWere) {
  const std::array<uint8_t, 4> stored = {255, 0, 17, 128};
  for (const float row_scale : {1.0F, 3e-5F, 0.1F}) {
    std::vector<float> scales;
    for (const uint8_t multiplier : stored) {
      scales.push_back(row_scale * static_cast<float>(multiplier));
    }
    std::array<uint8_t, 4> multipliers{};
    const float rounded = round_block_scales(scales, multipliers);
    EXPECT_EQ(multipliers, stored);
    EXPECT_FLOAT_EQ(rounded, row_scale);
  }
}

TEST(BlockScales, TheLargestScaleHasTheLargestMultiplier) {
  const std::array<float, 2> scales = {0.7F, 0.69F};
  std::array<uint8_t, 2> multipliers{};
  const float row_scale = round_block_scales(scales, multipliers);
  EXPECT_EQ(multipliers[0], 255);
  EXPECT_EQ(multipliers[1], 251);  // 0.69 / 0.7 x 255 = 251.4
  EXPECT_GE(static_cast<double>(row_scale) * 255, static_cast<double>(scales[0]));
}

TEST(BlockScales, ARowOfZerosHasScaleZero) {
  const std::array<float, 2> scales = {0, 0};
  std::array<uint8_t, 2> multipliers = {9, 9};
  EXPECT_EQ(round_block_scales(scales, multipliers), 0);
  EXPECT_EQ(multipliers, (std::array<uint8_t, 2>{0, 0}));
}

TEST(BlockScales, ScalesThatAreNoneEndTheProcess) {
  std::array<uint8_t, 2> multipliers{};
  for (const float scale : {NAN, INFINITY, -1.0F}) {
    const std::array<float, 2> scales = {1, scale};
    EXPECT_DEATH(round_block_scales(scales, multipliers), "multiplier >= 0");
  }
}

}  // namespace
}  // namespace k3
