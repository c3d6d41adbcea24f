#include "schema/formats/int8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace k3 {
namespace {

struct EncodedRow {
  std::vector<int8_t> codes;
  std::vector<uint8_t> multipliers;
  float row_scale = 0;

  double weight(size_t i) const {
    return decode_int8(codes[i], multipliers[i / kBlockInputs], row_scale);
  }
};

EncodedRow encode(const std::vector<float>& weights) {
  EncodedRow row;
  const size_t blocks = (weights.size() + kBlockInputs - 1) / kBlockInputs;
  row.codes.assign(blocks * kBlockInputs, 99);
  row.multipliers.assign(blocks, 99);
  row.row_scale = encode_int8_row(weights, row.codes, row.multipliers);
  return row;
}

// Half a step of the block's grid, whose step is row_scale x multiplier.
void expect_within_half_a_step(const std::vector<float>& weights) {
  const EncodedRow row = encode(weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double step = static_cast<double>(row.row_scale) * row.multipliers[i / kBlockInputs];
    EXPECT_LE(std::fabs(row.weight(i) - static_cast<double>(weights[i])), 0.5 * step * (1 + 1e-12))
        << i << " of " << weights.size() << ", weight " << weights[i];
    EXPECT_NE(row.codes[i], -128);
  }
  for (size_t i = weights.size(); i < row.codes.size(); ++i) EXPECT_EQ(row.codes[i], 0);
}

TEST(Int8, RoundTripStaysWithinHalfAStepAtEveryWidth) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  for (const size_t cols : {1, 2, 159, 160, 161, 319, 320, 321, 1000, 7168}) {
    std::vector<float> weights(cols);
    for (float& weight : weights) weight = normal(random);
    expect_within_half_a_step(weights);
  }
}

TEST(Int8, BlocksOfVeryDifferentSizeKeepTheirOwnGrid) {
  std::vector<float> weights(480, 1.0f);
  std::fill(weights.begin() + 160, weights.begin() + 320, 0.99f / 255);
  std::fill(weights.begin() + 320, weights.end(), 0.0f);
  const EncodedRow row = encode(weights);
  EXPECT_EQ(row.multipliers, (std::vector<uint8_t>{255, 1, 0}));
  EXPECT_EQ(row.codes[0], 127);
  EXPECT_EQ(row.codes[160], 126);  // 0.99 x 127
  EXPECT_EQ(row.codes[320], 0);
  expect_within_half_a_step(weights);
}

TEST(Int8, AnAllZeroRowHasScaleZero) {
  const EncodedRow row = encode(std::vector<float>(161, 0.0f));
  EXPECT_EQ(row.row_scale, 0.0f);
  EXPECT_EQ(row.multipliers, (std::vector<uint8_t>{0, 0}));
  EXPECT_EQ(row.weight(0), 0.0);
}

TEST(Int8, TheLargestWeightIsNeverClamped) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
  for (int i = 0; i < 10'000; ++i) {
    const float largest = uniform(random);
    const EncodedRow row = encode({largest, -largest});
    EXPECT_GE(static_cast<double>(row.row_scale) * 255 * 127, static_cast<double>(largest));
    EXPECT_EQ(row.codes[0], -row.codes[1]);
    EXPECT_GE(row.codes[0], 126);
  }
}

TEST(Int8, ExtremesOfFloatSurvive) {
  expect_within_half_a_step({std::numeric_limits<float>::max(), 1.0f});
  // Subnormal scales are coarse, but codes stay codes and nothing becomes NaN.
  const EncodedRow row = encode({1e-44f, 1e-45f, -1e-44f});
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(row.weight(i)));
}

}  // namespace
}  // namespace k3
