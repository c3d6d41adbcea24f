#include "runtime/measure_sensitivity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/evaluate.h"
#include "runtime/named_matrix.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

// Two windows of nano's tokens.
TokenWindows two_windows() {
  TokenWindows windows;
  windows.texts = {{"calibration-made", 1}};
  windows.windows = {{132, 84, 263, 402, 291, 905, 77, 310}, {512, 3, 17, 900, 44, 263, 402, 1}};
  return windows;
}

std::vector<CandidatePack> candidates(const std::vector<std::string>& names) {
  std::vector<CandidatePack> packs;
  for (const std::string& name : names) {
    packs.push_back({name, std::make_unique<PackReader>(test::pack_path(name))});
  }
  return packs;
}

void ignore(double) {}

// KL(base || other) over the windows by two whole forward passes, as eval measures it.
double whole_kl(LoadedModel& base, LoadedModel& other, const TokenWindows& windows) {
  double sum = 0;
  for (const std::vector<int32_t>& window : windows.windows) {
    std::vector<int32_t> ids = window;
    ids.push_back(0);  // a window predicts the token behind it
    const EvalResult result =
        evaluate(other.forward(), &base.forward(), {"made", 1, {ids}},
                 {.window_tokens = std::ssize(window), .resamples = 1}, [](int64_t) {});
    sum += result.comparison->kl.mean * static_cast<double>(window.size());
  }
  return sum / static_cast<double>(windows.tokens());
}

TEST(MeasureSensitivity, AWholeSwapIsTheDistanceToTheCandidate) {
  LoadedModel base({.pack_path = test::pack_path("nano")});
  LoadedModel ternary({.pack_path = test::pack_path("nano_ternary")});
  const Sensitivity measured =
      measure_sensitivity(base, candidates({"nano_ternary"}), two_windows(), ignore);
  EXPECT_EQ(measured.matrices.size(), 78U);
  EXPECT_EQ(measured.positions, 16);
  ASSERT_EQ(measured.whole.size(), 1U);
  const double expected = whole_kl(base, ternary, two_windows());
  EXPECT_NEAR(measured.whole[0].kl, expected, 1e-9 * expected);
  EXPECT_EQ(measured.whole[0].matrices, 78);
  double sum = 0;
  for (const MatrixSensitivity& matrix : measured.matrices) sum += matrix.swaps.at(0).kl;
  EXPECT_NEAR(measured.whole[0].single_kl, sum, 1e-12);
}

// A run that starts at the layer of the swap must give what a whole run gives.
TEST(MeasureSensitivity, ASingleSwapIsAWholePassWithThatMatrix) {
  constexpr const char* kName = "model.layers.5.self_attn.o_proj.weight";
  LoadedModel base({.pack_path = test::pack_path("nano")});
  const Sensitivity measured = measure_sensitivity(
      base, candidates({"nano_ternary2", "nano_ternary"}), two_windows(), ignore);
  LoadedModel ternary({.pack_path = test::pack_path("nano_ternary")});
  LoadedModel swapped({.pack_path = test::pack_path("nano")});
  *find_matrix(swapped.weights(), kName).view = *find_matrix(ternary.weights(), kName).view;
  const MatrixSensitivity* matrix = measured.find(kName);
  ASSERT_NE(matrix, nullptr);
  ASSERT_EQ(matrix->swaps.size(), 2U);
  EXPECT_EQ(matrix->swaps[1].format, Format::kTernary);
  const double expected = whole_kl(base, swapped, two_windows());
  EXPECT_GT(expected, 0);
  EXPECT_NEAR(matrix->swaps[1].kl, expected, 1e-9 * expected + 1e-15);
  EXPECT_EQ(whole_kl(base, base, two_windows()), 0);
}

TEST(MeasureSensitivity, RefusesCandidatesThatTellNothing) {
  LoadedModel base({.pack_path = test::pack_path("nano")});
  const auto fault = [&](const std::vector<std::string>& names) {
    return thrown_message(
        [&] { measure_sensitivity(base, candidates(names), two_windows(), ignore); });
  };
  EXPECT_NE(fault({"nano"}).find("has every trunk matrix in the format of"), std::string::npos);
  EXPECT_NE(fault({"odd"}).find("is of another model than"), std::string::npos);
  EXPECT_NE(
      fault({"nano_ternary", "nano_ternary"}).find("expected candidates in different formats"),
      std::string::npos);
}

}  // namespace
}  // namespace k3
