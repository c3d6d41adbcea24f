#include "schema/formats/bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace k3 {
namespace {

TEST(Bf16, EveryCodeDecodesToItsBitsAndBack) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = decode_bf16(static_cast<uint16_t>(code));
    EXPECT_EQ(std::bit_cast<uint32_t>(value), code << 16);
    if (std::isnan(value)) {
      EXPECT_EQ(encode_bf16(value), code | 0x40u);  // quiet, same payload
    } else {
      EXPECT_EQ(encode_bf16(value), code);
    }
  }
}

// The nearer of two neighbours by plain arithmetic; the even one when both are equally near.
TEST(Bf16, BetweenTwoNeighboursTheNearerWinsAndTiesGoToEven) {
  for (uint32_t code = 0; code < 0x7f7f; ++code) {
    const double low = decode_bf16(static_cast<uint16_t>(code));
    const double high = decode_bf16(static_cast<uint16_t>(code + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more bit
    const uint32_t even = (code & 1u) != 0 ? code + 1 : code;
    EXPECT_EQ(encode_bf16(middle), even) << code;
    EXPECT_EQ(encode_bf16(-middle), even | 0x8000u) << code;
    EXPECT_EQ(encode_bf16(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(encode_bf16(std::nextafter(middle, INFINITY)), code + 1);
  }
}

TEST(Bf16, BeyondTheLargestBecomesInfinity) {
  EXPECT_EQ(encode_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(encode_bf16(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_EQ(encode_bf16(std::bit_cast<float>(0x7f7f7fffu)), 0x7f7f);  // just below the tie
  EXPECT_EQ(encode_bf16(std::bit_cast<float>(0x7f7f8000u)), 0x7f80);  // the tie; 0x7f7f is odd
}

TEST(Bf16, NansThatWouldLoseTheirPayloadStayNans) {
  EXPECT_EQ(encode_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(encode_bf16(std::bit_cast<float>(0xffffffffu)), 0xffff);
}

}  // namespace
}  // namespace k3
