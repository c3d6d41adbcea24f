// Packs with a ternary trunk, run end to end: on the reference and on every instruction set. Those
// of odd end every row inside a block.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/generate.h"
#include "runtime/loaded_model.h"
#include "tests/kernels/bit_equality.h"
#include "tests/kernels/forced_target.h"
#include "tests/runtime/packs.h"

namespace k3 {
namespace {

class TernaryTrunk : public testing::TestWithParam<const char*> {};

// The logits behind a prompt of two chunks, the second a single token.
std::vector<float> logits_of(const std::string& pack, const std::string& backend) {
  LoadedModel model({.pack_path = test::pack_path(pack),
                     .backend = backend,
                     .chunk_tokens = std::ssize(test::kPrompt) - 1});
  SequenceState state(model.pack().config());
  generate(model.forward(), state, model.tokenizer(), test::kPrompt, {.max_new_tokens = 0},
           [](auto) {});
  return state.last_logits;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double off = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(off / size);
}

TEST_P(TernaryTrunk, CpuAgreesWithTheReference) {
  const std::vector<float> reference = logits_of(GetParam(), "reference");
  const std::vector<float> cpu = logits_of(GetParam(), "cpu");
  ASSERT_EQ(cpu.size(), reference.size());
  EXPECT_TRUE(std::all_of(reference.begin(), reference.end(),
                          [](float logit) { return std::isfinite(logit); }));
  EXPECT_LT(distance(cpu, reference), 1e-3);
}

// The first target has no vector code: it runs the exact functions of the contract.
TEST_P(TernaryTrunk, EveryInstructionSetHasTheExactBits) {
  std::vector<float> exact;
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    const std::vector<float> logits = logits_of(GetParam(), "cpu");
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
