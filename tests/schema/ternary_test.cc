#include "schema/formats/ternary.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <vector>

namespace k3 {
namespace {

using Trits = std::array<int, 5>;

// The five digits of v in base 3, the top one first, less one.
Trits digits_of(int v) {
  Trits trits{};
  for (size_t place = 5; place-- > 0; v /= 3) trits[place] = v % 3 - 1;
  return trits;
}

// The least whole number that is not below 256 v / 243, by search.
int byte_of(int v) {
  int byte = 0;
  while (byte * 243 < 256 * v) ++byte;
  return byte;
}

Trits decode_all(uint8_t byte) {
  Trits trits{};
  for (int place = 0; place < 5; ++place) {
    trits[static_cast<size_t>(place)] = decode_trit(byte, place);
  }
  return trits;
}

TEST(Ternary, EveryGroupOfFiveTritsSurvivesItsByte) {
  std::set<int> bytes;
  for (int v = 0; v < 243; ++v) {
    const uint8_t byte = encode_five_trits(v);
    EXPECT_EQ(byte, byte_of(v)) << v;
    EXPECT_EQ(decode_all(byte), digits_of(v)) << v;
    EXPECT_TRUE(holds_five_trits(byte)) << v;
    bytes.insert(byte);
  }
  EXPECT_EQ(bytes.size(), 243u);
}

TEST(Ternary, ExactlyThirteenBytesHoldNoTritsAndDecodeToTritsAllTheSame) {
  std::set<int> made;
  for (int v = 0; v < 243; ++v) made.insert(byte_of(v));
  int refused = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto code = static_cast<uint8_t>(byte);
    EXPECT_EQ(holds_five_trits(code), made.contains(byte)) << byte;
    refused += holds_five_trits(code) ? 0 : 1;
    // The recipe: three times the byte, carry out, remainder on.
    int rest = byte;
    for (int place = 0; place < 5; ++place) {
      EXPECT_EQ(decode_trit(code, place), 3 * rest / 256 - 1) << byte;
      rest = 3 * rest % 256;
    }
  }
  EXPECT_EQ(refused, 13);
}

TEST(Ternary, FiveZerosAreTheByteOfPadding) {
  EXPECT_EQ(encode_five_trits(121), kFiveZeroTrits);  // 11111 in base 3
  EXPECT_EQ(decode_all(kFiveZeroTrits), Trits{});
  EXPECT_EQ(decode_all(0), (Trits{-1, -1, -1, -1, -1}));
}

TEST(Ternary, EveryCodeOfTernary2IsTwoTrits) {
  for (int code = -4; code <= 4; ++code) {
    const int first = first_trit(code);
    const int second = code - 3 * first;
    EXPECT_LE(std::abs(first), 1) << code;
    EXPECT_LE(std::abs(second), 1) << code;
  }
  EXPECT_EQ(first_trit(-2), -1);
  EXPECT_EQ(first_trit(-1), 0);
  EXPECT_EQ(first_trit(1), 0);
  EXPECT_EQ(first_trit(2), 1);
}

TEST(Ternary, AByteHoldsEveryThirtySecondInputOfItsBlock) {
  EXPECT_EQ(trit_byte(0), 0);
  EXPECT_EQ(trit_byte(31), 31);
  EXPECT_EQ(trit_byte(32), 0);
  EXPECT_EQ(trit_place(32), 1);
  EXPECT_EQ(trit_byte(159), 31);
  EXPECT_EQ(trit_place(159), 4);
  EXPECT_EQ(trit_byte(160), 32);
  EXPECT_EQ(trit_place(160), 0);
}

TEST(Ternary, PackedTritsAreFoundWhereTheirInputsLie) {
  std::mt19937 random(1);
  std::vector<int8_t> trits(480);
  for (int8_t& trit : trits) trit = static_cast<int8_t>(static_cast<int>(random() % 3) - 1);
  std::vector<uint8_t> bytes(96);
  pack_trits(trits, bytes);
  for (size_t input = 0; input < trits.size(); ++input) {
    const auto at = static_cast<int64_t>(input);
    EXPECT_EQ(decode_trit(bytes[static_cast<size_t>(trit_byte(at))], trit_place(at)), trits[input])
        << input;
  }
}

TEST(Ternary, AWeightIsTheExactProductOfCodeMultiplierAndRowScale) {
  EXPECT_EQ(decode_ternary(-4, 255, 0x1.fffffep-126F), -4 * 255 * 0x1.fffffep-126);
  EXPECT_EQ(decode_ternary(1, 3, 0.1F), 3 * static_cast<double>(0.1F));
  EXPECT_EQ(decode_ternary(0, 255, 1e30F), 0.0);
}

}  // namespace
}  // namespace k3
