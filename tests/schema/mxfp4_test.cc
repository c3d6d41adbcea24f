#include "schema/formats/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace k3 {
namespace {

// E2M1 and E8M0 from the text of OCP Microscaling 1.0: sign, two exponent bits with bias 1, one
// mantissa bit, subnormal at exponent 0; a scale is a power of two with bias 127.
double slow_e2m1(unsigned code) {
  const double sign = (code & 8u) != 0 ? -1 : 1;
  const int exponent = static_cast<int>((code >> 1) & 3u);
  const int mantissa = static_cast<int>(code & 1u);
  if (exponent == 0) return sign * mantissa * 0.5;
  return sign * std::pow(2.0, exponent - 1) * (1 + 0.5 * mantissa);
}

double slow_scale(int byte) {
  double value = 1;
  for (int i = 127; i < byte; ++i) value *= 2;
  for (int i = 127; i > byte; --i) value /= 2;
  return value;
}

TEST(Mxfp4, EveryCodeUnderEveryScaleIsTheStandardsValue) {
  for (unsigned code = 0; code < 16; ++code) {
    for (int scale = 0; scale < 255; ++scale) {
      const float got = decode_mxfp4(code, static_cast<uint8_t>(scale));
      const double want = slow_e2m1(code) * slow_scale(scale);
      // In double no value rounds; 3, 4 and 6 x 2^127 (codes under scale 254) pass float's range.
      EXPECT_EQ(static_cast<double>(got), static_cast<double>(static_cast<float>(want)));
      if (std::fabs(want) < 0x1p128) {
        EXPECT_EQ(static_cast<double>(got), want) << "code " << code << " scale " << scale;
      }
    }
    EXPECT_TRUE(std::isnan(decode_mxfp4(code, kMxfp4NanScale)));
  }
}

TEST(Mxfp4, DoubledCodesAreTwiceTheValue) {
  for (unsigned code = 0; code < 16; ++code) {
    EXPECT_EQ(decode_mxfp4_doubled(code), 2 * slow_e2m1(code)) << code;
  }
}

TEST(Mxfp4, ScaleZeroIsTwoToTheMinus127) {
  EXPECT_EQ(decode_e8m0(0), std::ldexp(1.0, -127));
  EXPECT_EQ(decode_mxfp4(1, 0), std::ldexp(1.0f, -128));  // a subnormal float, not zero
  EXPECT_EQ(decode_e8m0(134), 128.0);
}

TEST(Mxfp4, LowNibbleIsTheEvenInput) {
  const uint8_t codes[2] = {0x21, 0x43};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(mxfp4_code_at(codes, i), static_cast<unsigned>(i + 1));
}

}  // namespace
}  // namespace k3
