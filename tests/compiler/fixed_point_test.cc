#include "compiler/fixed_point.h"

#include <gtest/gtest.h>

#include <cmath>

#include "schema/formats/bf16.h"
#include "schema/little_endian.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

TEST(FixedPoint, IsTheLargestThatKeepsTheSumBelow2To62) {
  ModelConfig config = tiny_config();
  for (const bool renormalize : {true, false}) {
    config.renormalize = renormalize;
    for (const double factor : {0.1, 1.0, 2.446}) {
      config.routed_scaling_factor = factor;
      for (const double bound : {1e-9, 0.64, 1.0, 288.0, 1e9}) {
        const int fixed_point = fixed_point_for(config, bound);
        const double weights = std::fmax(1.0, renormalize ? factor : 2 * factor);
        const double largest = 100 * bound * weights;
        EXPECT_LT(std::ldexp(largest, fixed_point), 0x1p62);
        EXPECT_GE(std::ldexp(largest, fixed_point + 1), 0x1p62);
      }
    }
  }
}

TEST(FixedPoint, AtAPowerOfTwoTheBoundIsStrict) {
  ModelConfig config = tiny_config();
  config.situ_beta = 4;
  config.situ_linear_beta = 16;
  EXPECT_EQ(fixed_point_for(config, 1.0), 55);  // 64 x 2^55 = 2^61; 2^62 would not be below 2^62
}

TEST(FixedPoint, SiluIsGivenABoundOf2To20) {
  ModelConfig config = tiny_config();
  config.activation = Activation::kSilu;
  EXPECT_EQ(fixed_point_for(config, 1.0), 41);  // 2^20 x 2^41 = 2^61
  // Row sums of 20, weights that add up to 2.446: steps of 2^-36.
  config.routed_scaling_factor = 2.446;
  EXPECT_EQ(fixed_point_for(config, 20.0), 36);
}

TEST(RowBound, TakesTheLargestRowOfScalesAtFullMagnitude) {
  // Two rows of three groups: 192 x (1 + 1 + 2) and 192 x (4 + 1/2 + 1/4).
  const std::vector<std::byte> scales = {std::byte{127}, std::byte{127}, std::byte{128},
                                         std::byte{129}, std::byte{126}, std::byte{125}};
  EXPECT_EQ(row_bound_mxfp4(scales, 2), 192 * 4.75);
}

TEST(RowBound, OfBf16IsTheSumOfMagnitudes) {
  std::vector<std::byte> weights(8);
  const float values[4] = {1.0f, -2.0f, -0.5f, 0.25f};
  for (size_t i = 0; i < 4; ++i) store_little_endian(encode_bf16(values[i]), &weights[2 * i]);
  EXPECT_EQ(row_bound_bf16(weights, 2), 3.0);
}

TEST(RowBound, OfBf16IsNotFiniteWhenAWeightIsNot) {
  for (const float bad : {std::nanf(""), -HUGE_VALF}) {
    std::vector<std::byte> weights(12);
    store_little_endian(encode_bf16(bad), &weights[4]);
    store_little_endian(encode_bf16(7.0f), &weights[8]);
    EXPECT_FALSE(std::isfinite(row_bound_bf16(weights, 3)));
  }
}

}  // namespace
}  // namespace k3
