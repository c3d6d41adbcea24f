// Rotated packs, run end to end. In odd no two widths are equal, and its stream is 219 channels
// wide: blocks of one.

#include <gtest/gtest.h>

#include "tests/kernels/bit_equality.h"
#include "tests/kernels/forced_target.h"
#include "tests/runtime/pack_logits.h"

namespace k3 {
namespace {

class RotatedPack : public testing::TestWithParam<const char*> {};

// What is left is the rounding of rotated weights to float, and of the stream between layers.
TEST_P(RotatedPack, HasTheLogitsOfTheUnrotatedOne) {
  const std::string name = GetParam();
  const std::vector<float> want = test::logits_of(name, "reference");
  const std::vector<float> got = test::logits_of(name + "_rotated", "reference");
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LT(test::distance(got, want), 2e-5);
  EXPECT_GT(test::distance(got, want), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Packs, RotatedPack, testing::Values("nano", "odd"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(RotatedInt8Pack, CpuAgreesWithTheReference) {
  EXPECT_LT(test::distance(test::logits_of("odd_rotated_int8", "cpu"),
                           test::logits_of("odd_rotated_int8", "reference")),
            1e-3);
}

TEST(RotatedInt8Pack, EveryInstructionSetHasTheExactBits) {
  std::vector<float> exact;
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    const std::vector<float> logits = test::logits_of("odd_rotated_int8", "cpu");
    if (exact.empty()) exact = logits;
    EXPECT_TRUE(same_bits(logits, exact)) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace k3
