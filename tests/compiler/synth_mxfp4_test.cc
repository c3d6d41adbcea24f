#include "compiler/synth_mxfp4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "schema/formats/mxfp4.h"

namespace k3 {
namespace {

struct Group {
  uint8_t scale = 0;
  std::array<std::byte, 16> bytes{};

  unsigned code(int64_t i) const {
    return mxfp4_code_at(reinterpret_cast<const uint8_t*>(bytes.data()), i);
  }
};

// The first weights as given, the others 0.
Group quantized(const std::vector<float>& first) {
  std::array<float, 32> weights{};
  std::copy(first.begin(), first.end(), weights.begin());
  Group group;
  group.scale = quantize_mxfp4_group(weights, group.bytes);
  return group;
}

TEST(SynthMxfp4, ThePlaceOfAWeightIsItsNibble) {
  const Group group = quantized({6, 0.5f, 1, 1.5f, 2, 3, 4, -6});
  EXPECT_EQ(group.scale, 127);
  const std::array<unsigned, 8> codes = {7, 1, 2, 3, 4, 5, 6, 15};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(group.code(i), codes[static_cast<size_t>(i)]) << i;
}

TEST(SynthMxfp4, HalvesRoundToTheEvenCode) {
  const Group group = quantized({6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5});
  const std::array<unsigned, 8> codes = {7, 0, 2, 2, 4, 4, 6, 6};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(group.code(i), codes[static_cast<size_t>(i)]) << i;
}

TEST(SynthMxfp4, TheScaleIsTheSmallestThatFits) {
  EXPECT_EQ(quantized({6}).scale, 127);
  EXPECT_EQ(quantized({6.001f}).scale, 128);
  EXPECT_EQ(quantized({3.001f}).scale, 127);
  EXPECT_EQ(quantized({3}).scale, 126);
  EXPECT_EQ(quantized({-0.01f}).scale, 118);  // between 6 / 1024 and 6 / 512
}

TEST(SynthMxfp4, TheLargestOfAGroupIsNeverThree) {
  const Group group = quantized({6.2f, 6});  // 3.1 and 3 steps of 2
  EXPECT_EQ(group.scale, 128);
  EXPECT_EQ(group.code(0), 6u);
  EXPECT_EQ(group.code(1), 5u);
}

TEST(SynthMxfp4, SmallNegativeWeightsBecomeNegativeZero) {
  EXPECT_EQ(quantized({6, -0.1f}).code(1), 8u);
}

TEST(SynthMxfp4, AGroupOfZerosHasAScaleThatIsANumber) {
  const Group group = quantized({});
  EXPECT_GE(group.scale, 1);
  EXPECT_LE(group.scale, 254);
  EXPECT_EQ(group.bytes, (std::array<std::byte, 16>{}));
}

TEST(SynthMxfp4, DeviationsAreTheNearestNaturalOnes) {
  EXPECT_EQ(natural_mxfp4_deviation(1.575f), 1.575f);
  EXPECT_EQ(natural_mxfp4_deviation(1.575f * 1.41f), 1.575f);
  EXPECT_EQ(natural_mxfp4_deviation(1.575f * 1.42f), 3.15f);
  EXPECT_EQ(natural_mxfp4_deviation(1.575f / 64), 1.575f / 64);
}

}  // namespace
}  // namespace k3
