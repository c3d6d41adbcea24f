#include "schema/mix_bits.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

// The first outputs of the published generator; schema/README.md, Rotation, fixes them for packs.
TEST(MixBits, NumbersAreThoseOfSplitMix64) {
  EXPECT_EQ(split_mix(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(split_mix(0, 1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(split_mix(0, 2), 0x06c45d188009454fu);
  EXPECT_EQ(split_mix(1234567, 0), 6457827717110365317u);
}

}  // namespace
}  // namespace k3
