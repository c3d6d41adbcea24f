// Packs with a ternary trunk, run end to end: on the reference and on every instruction set. Those
// of odd end every row inside a block.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/bit_equality.h"
#include "tests/kernels/forced_target.h"
#include "tests/runtime/pack_logits.h"

namespace k3 {
namespace {

class TernaryTrunk : public testing::TestWithParam<const char*> {};

TEST_P(TernaryTrunk, CpuAgreesWithTheReference) {
  const std::vector<float> reference = test::logits_of(GetParam(), "reference");
  const std::vector<float> cpu = test::logits_of(GetParam(), "cpu");
  ASSERT_EQ(cpu.size(), reference.size());
  EXPECT_TRUE(std::all_of(reference.begin(), reference.end(),
                          [](float logit) { return std::isfinite(logit); }));
  EXPECT_LT(test::distance(cpu, reference), 1e-3);
}

// The first target has no vector code: it runs the exact functions of the contract.
TEST_P(TernaryTrunk, EveryInstructionSetHasTheExactBits) {
  std::vector<float> exact;
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    const std::vector<float> logits = test::logits_of(GetParam(), "cpu");
    if (exact.empty()) exact = logits;
    EXPECT_TRUE(same_bits(logits, exact)) << hwy::TargetName(target);
  }
}

INSTANTIATE_TEST_SUITE_P(Packs, TernaryTrunk,
                         testing::Values("nano_ternary", "nano_ternary2", "odd_ternary",
                                         "odd_ternary2"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace k3
