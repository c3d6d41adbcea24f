#include "runtime/tune_parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/token_windows.h"
#include "tests/runtime/nano_tokenizer.h"
#include "tests/runtime/packs.h"
#include "tests/thrown_message.h"

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
  TeacherLoss loss(teacher, unseen.windows);
  const double before = mean_divergence(student, loss);
  std::vector<double> kl;
  tune_parameters(student, teacher, windows_of(CalibrationHalf::kFit).windows,
                  {.steps = 12, .step_tokens = 256, .learning_rate = 0.02},
                  [&](const TuneStep& step) { kl.push_back(step.kl); });
  const double after = mean_divergence(student, loss);
  TeacherLoss anew(teacher, unseen.windows);
  EXPECT_EQ(mean_divergence(student, anew), after);  // training left the loss as it was
  EXPECT_EQ(kl.size(), 12U);
  EXPECT_LT(after, 0.9 * before);
}

TEST(TuneParameters, CodesThatAreTrainedChangeAndBringTheModelNearer) {
  ModelGradient student(test::pack_path("nano_ternary"), "cpu", 64, true, true);
  LayerwiseModel teacher(test::pack_path("nano"), "cpu", 64, true);
  std::vector<std::vector<int8_t>> codes;
  for (const TunedParameter& each : student.parameters()) codes.push_back(rounded_latents(each));
  const auto changed = [&] {
    int64_t matrices = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      matrices += rounded_latents(student.parameters()[i]) != codes[i] ? 1 : 0;
    }
    return matrices;
  };
  lean_codes(student, teacher);
  EXPECT_EQ(changed(), 0);  // leaning is not changing
  const TokenWindows unseen = windows_of(CalibrationHalf::kSelect);
  TeacherLoss loss(teacher, unseen.windows);
  const double before = mean_divergence(student, loss);
  tune_parameters(student, teacher, windows_of(CalibrationHalf::kFit).windows,
                  {.steps = 20, .step_tokens = 128, .learning_rate = 0.01, .code_rate = 0.02},
                  [](const TuneStep&) {});
  EXPECT_EQ(changed(), 78);
  EXPECT_LT(mean_divergence(student, loss), 0.9 * before);
}

class NotFinite : public testing::Test {
 protected:
  std::string fault_of_training(double learning_rate) {
    return thrown_message([&] {
      tune_parameters(student_, teacher_, windows_of(CalibrationHalf::kFit).windows,
                      {.steps = 3, .step_tokens = 64, .learning_rate = learning_rate},
                      [](const TuneStep&) {});
    });
  }

  ModelGradient student_{test::pack_path("nano_ternary"), "cpu", 64, true, true};
  LayerwiseModel teacher_{test::pack_path("nano"), "cpu", 64, true};
};

TEST_F(NotFinite, StreamEndsTheTraining) {
  const std::string message = fault_of_training(1e38);
  EXPECT_NE(message.find("the stream after layer "), std::string::npos) << message;
  EXPECT_NE(message.find(", expected a finite number (backend "), std::string::npos) << message;
}

TEST_F(NotFinite, PredictionsEndTheTraining) {
  // What comes before the last norm stays finite.
  std::ranges::fill(
      std::ranges::find(student_.parameters(), "model.norm.weight", &TunedParameter::name)->values,
      std::numeric_limits<float>::max());
  const std::string message = fault_of_training(0.01);
  EXPECT_TRUE(message.starts_with("step 1: KL is ")) << message;
  const TokenWindows unseen = windows_of(CalibrationHalf::kSelect);
  TeacherLoss loss(teacher_, unseen.windows);
  EXPECT_TRUE(thrown_message([&] { mean_divergence(student_, loss); }).starts_with("KL is "));
}

TEST_F(NotFinite, GradientEndsTheTraining) {
  TunedParameter& matrix = *std::ranges::find_if(
      student_.parameters(), [](const TunedParameter& each) { return !each.latents.empty(); });
  const TunedParameter sound = matrix;
  for (const bool of_codes : {false, true}) {
    matrix = sound;
    (of_codes ? matrix.latent_gradients : matrix.gradients)[0] = INFINITY;
    const std::string message = fault_of_training(0.01);
    EXPECT_TRUE(message.starts_with("step 1: tensor " + sound.name + ": has a gradient that"))
        << message;
  }
}

TEST(TuneParameters, DivergenceOfAModelFromItselfIsNothing) {
  ModelGradient student(test::pack_path("nano"), "cpu", 64, true);
  LayerwiseModel teacher(test::pack_path("nano"), "cpu", 64, true);
  const TokenWindows windows = windows_of(CalibrationHalf::kSelect);
  TeacherLoss loss(teacher, windows.windows);
  EXPECT_LT(mean_divergence(student, loss), 1e-12);
}

}  // namespace
}  // namespace k3
