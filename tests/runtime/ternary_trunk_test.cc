// A pack with a ternary trunk, run end to end: on the reference and on every instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/generate.h"
#include "runtime/loaded_model.h"
#include "tests/kernels/bit_equality.h"
#include "tests/kernels/forced_target.h"

namespace k3 {
namespace {

class TernaryTrunk : public testing::TestWithParam<const char*> {};

// The logits behind a prompt of two whole chunks and a single token.
std::vector<float> logits_of(const std::string& format, const std::string& backend) {
  LoadedModel model({.pack_path = K3_BINARY_DIR "/nano-" + format + ".k3pack",
                     .backend = backend,
                     .chunk_tokens = 5});
  SequenceState state(model.pack().config());
  const std::vector<int32_t> ids = {2032, 84, 263, 17, 1999, 640, 3, 84, 263, 700, 41};
  generate(model.forward(), state, model.tokenizer(), ids, {.max_new_tokens = 0}, [](auto) {});
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

INSTANTIATE_TEST_SUITE_P(Formats, TernaryTrunk, testing::Values("ternary", "ternary2"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace k3
