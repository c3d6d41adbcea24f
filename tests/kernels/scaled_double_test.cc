#include "kernels/scaled_double.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "schema/formats/bf16.h"

namespace k3 {
namespace {

TEST(Widen, IsTheConversionForEveryKindOfFloat) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    const float value = float_from_bits(static_cast<uint32_t>(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(widen(value)));
    } else {
      ASSERT_EQ(double_bits(widen(value)), double_bits(static_cast<double>(value))) << value;
    }
  }
  for (const float value : {0.0F, -0.0F, 0x1p-149F, 0x1p-126F, 0x1.fffffep-127F, 0x1.fffffep127F,
                            std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(double_bits(widen(value)), double_bits(static_cast<double>(value))) << value;
    EXPECT_EQ(double_bits(widen(-value)), double_bits(static_cast<double>(-value))) << value;
  }
}

TEST(ScaledWeight, IsTheWeightScaledExactlyForEveryFiniteBf16) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float weight = decode_bf16(static_cast<uint16_t>(code));
    if (!std::isfinite(weight)) continue;
    const uint64_t want = double_bits(std::ldexp(static_cast<double>(weight), -896));
    ASSERT_EQ(double_bits(scaled_short_weight(code << 16)), want);
    ASSERT_EQ(double_bits(scaled_short_weight(code << 16 | 0x1234u)), want);  // a neighbour's bits
    ASSERT_EQ(double_bits(scaled_weight(code << 16)), want);
  }
}

TEST(ScaledWeight, KeepsEveryBitOfAFloat) {
  for (const float weight : {0x1.fffffep127F, -0x1.234566p3F, 0x1.fffffep-127F, 0x1p-149F}) {
    EXPECT_EQ(scaled_weight(float_bits(weight)), std::ldexp(static_cast<double>(weight), -896));
  }
}

TEST(ScaledActivation, TimesTheScaledWeightIsTheProduct) {
  constexpr float kValues[] = {0.0F,  0x1p-149F,      -0x1.fffffep-127F, 0x1.234566p-20F,
                               -1.0F, 0x1.fffffep127F};
  for (const float weight : kValues) {
    for (const float x : kValues) {
      for (const double sum : {0.0, 1e-300, -0x1.8p70}) {
        EXPECT_EQ(
            double_bits(std::fma(scaled_weight(float_bits(weight)), scaled_activation(x), sum)),
            double_bits(sum + static_cast<double>(weight) * static_cast<double>(x)));
      }
    }
  }
  EXPECT_TRUE(std::isnan(scaled_activation(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(scaled_activation(-std::numeric_limits<float>::infinity()), -HUGE_VAL);
}

}  // namespace
}  // namespace k3
