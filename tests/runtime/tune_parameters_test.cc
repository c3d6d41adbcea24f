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

TEST(TuneParameters, TrainedCodesAreOthersAndBetterThanScalesAlone) {
  LayerwiseModel teacher(test::pack_path("nano"), "cpu", 64, true);
  const TokenWindows unseen = windows_of(CalibrationHalf::kSelect);
  const auto trained = [&](bool codes) {
    ModelGradient student(test::pack_path("nano_ternary"), "cpu", 64, true, codes);
    std::vector<std::vector<int8_t>> before;
    for (const TunedParameter& each : student.parameters()) before.push_back(rounded_latents(each));
    tune_parameters(student, teacher, windows_of(CalibrationHalf::kFit).windows,
                    {.steps = 12, .step_tokens = 256, .learning_rate = 0.02, .code_rate = 0.1},
                    [](const TuneStep&) {});
    int64_t changed = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      changed += rounded_latents(student.parameters()[i]) != before[i] ? 1 : 0;
    }
    EXPECT_EQ(changed, codes ? 78 : 0);
    return mean_divergence(student, teacher, unseen.windows);
  };
  EXPECT_LT(trained(true), trained(false));
}

TEST(TuneParameters, DivergenceOfAModelFromItselfIsNothing) {
  ModelGradient student(test::pack_path("nano"), "cpu", 64, true);
  LayerwiseModel teacher(test::pack_path("nano"), "cpu", 64, true);
  EXPECT_LT(mean_divergence(student, teacher, windows_of(CalibrationHalf::kSelect).windows), 1e-12);
}

}  // namespace
}  // namespace k3
