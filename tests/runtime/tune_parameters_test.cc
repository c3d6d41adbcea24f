#include "runtime/tune_parameters.h"

#include <gtest/gtest.h>

#include "runtime/token_windows.h"
#include "tests/runtime/nano_tokenizer.h"
#include "tests/runtime/packs.h"

namespace k3 {
namespace {

TokenWindows windows_of(CalibrationHalf half) {
  return read_windows({K3_SOURCE_DIR "/examples/nano/text/calibration-prose.jsonl"}, half,
                      nano_tokenizer(), {64, 512});
}

TEST(TuneParameters, BringsAModelNearerToItsTeacherOnTextItHasNotSeen) {
  ModelGradient student(test::pack_path("nano_ternary"), "cpu", 64, true);
  LayerwiseModel teacher(test::pack_path("nano"), "cpu", 64, true);
  const TokenWindows unseen = windows_of(CalibrationHalf::kSelect);
  const double before = mean_divergence(student, teacher, unseen.windows);
  std::vector<double> kl;
  tune_parameters(student, teacher, windows_of(CalibrationHalf::kFit).windows,
                  {.steps = 12, .step_tokens = 256, .learning_rate = 0.02},
                  [&](const TuneStep& step) { kl.push_back(step.kl); });
  const double after = mean_divergence(student, teacher, unseen.windows);
  EXPECT_EQ(kl.size(), 12U);
  EXPECT_LT(after, 0.9 * before);
}

TEST(TuneParameters, DivergenceOfAModelFromItselfIsNothing) {
  ModelGradient student(test::pack_path("nano"), "cpu", 64, true);
  LayerwiseModel teacher(test::pack_path("nano"), "cpu", 64, true);
  EXPECT_LT(mean_divergence(student, teacher, windows_of(CalibrationHalf::kSelect).windows), 1e-12);
}

}  // namespace
}  // namespace k3
