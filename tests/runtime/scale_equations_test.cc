#include "runtime/scale_equations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/matmul.h"
#include "schema/error.h"
#include "tests/kernels/random_matrix.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

std::vector<float> random_rows(Random& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Two blocks a row, the second not full.
constexpr int64_t kRows = 5;
constexpr int64_t kCols = 200;
constexpr int64_t kTokens = 64;

class ScaleEquationsOf : public testing::TestWithParam<Format> {};

TEST_P(ScaleEquationsOf, FindTheScalesThatMadeTheOutputs) {
  Random random(3);
  RandomMatrix matrix(random, GetParam(), kRows, kCols);
  ScaleEquations equations(matrix.view, "");
  // The same codes with every multiplier its own, and other row scales.
  std::vector<uint8_t> multipliers;
  for (int64_t i = 0; i < kRows * 2; ++i) multipliers.push_back(static_cast<uint8_t>(40 + 11 * i));
  const std::vector<float> row_scales = {0.5F, 0.01F, 2, 1, 0.25F};
  MatrixView other = matrix.view;
  other.scales = multipliers.data();
  other.row_scales = row_scales.data();
  const std::vector<float> x = random_rows(random, kTokens * kCols);
  std::vector<float> wanted(kTokens * kRows);
  reference::matmul(other, x.data(), kTokens, wanted.data());

  equations.add(x.data(), kCols, wanted.data(), kTokens / 2);
  equations.add(x.data() + kTokens / 2 * kCols, kCols, wanted.data() + kTokens / 2 * kRows,
                kTokens / 2);
  const ScaleEquations::Solution solution = equations.solve(1e-12);
  for (size_t i = 0; i < multipliers.size(); ++i) {
    const float expected = row_scales[i / 2] * static_cast<float>(multipliers[i]);
    EXPECT_NEAR(solution.scales[i], expected, 1e-4 * expected) << i;
  }
  EXPECT_LT(solution.after, 1e-8 * solution.wanted);
  EXPECT_GT(solution.before, 1e-3 * solution.wanted);
}

INSTANTIATE_TEST_SUITE_P(Formats, ScaleEquationsOf,
                         testing::Values(Format::kInt8, Format::kTernary, Format::kTernary2),
                         [](const auto& instance) {
                           return std::string(format_name(instance.param));
                         });

std::vector<float> scales_of(const MatrixView& matrix) {
  std::vector<float> scales;
  for (int64_t i = 0; i < matrix.rows * matrix.scales_per_row; ++i) {
    scales.push_back(matrix.row_scales[i / matrix.scales_per_row] *
                     static_cast<float>(matrix.scales[i]));
  }
  return scales;
}

TEST(ScaleEquations, AreHeldToTheOldScalesByTheRidge) {
  Random random(4);
  RandomMatrix matrix(random, Format::kTernary, kRows, kCols);
  ScaleEquations equations(matrix.view, "");
  const std::vector<float> x = random_rows(random, kTokens * kCols);
  const std::vector<float> wanted(kTokens * kRows);  // nothing: the scales go to zero
  equations.add(x.data(), kCols, wanted.data(), kTokens);
  const std::vector<float> old = scales_of(matrix.view);
  const std::vector<float> free = equations.solve(1e-9).scales;
  const std::vector<float> held = equations.solve(1e9).scales;
  for (size_t i = 0; i < old.size(); ++i) {
    EXPECT_LT(free[i], 1e-6F * old[i]);
    EXPECT_NEAR(held[i], old[i], 1e-6F * old[i]);
  }
}

TEST(ScaleEquations, ABlockThatNothingReadsKeepsItsScale) {
  Random random(5);
  RandomMatrix matrix(random, Format::kTernary2, kRows, kCols);
  ScaleEquations equations(matrix.view, "");
  std::vector<float> x = random_rows(random, kTokens * kCols);
  for (int64_t t = 0; t < kTokens; ++t) std::fill_n(x.begin() + t * kCols + 160, 40, 0.0F);
  const std::vector<float> wanted = random_rows(random, kTokens * kRows);
  equations.add(x.data(), kCols, wanted.data(), kTokens);
  const std::vector<float> old = scales_of(matrix.view);
  const std::vector<float> fitted = equations.solve(1e-3).scales;
  for (size_t row = 0; row < kRows; ++row) EXPECT_EQ(fitted[2 * row + 1], old[2 * row + 1]);
}

TEST(ScaleEquations, ScaleBeyondTheFloatsIsTheLargestFloat) {
  Random random(6);
  RandomMatrix matrix(random, Format::kInt8, 1, 1);
  int8_t code = 1;
  matrix.view.codes = reinterpret_cast<const std::byte*>(&code);
  ScaleEquations equations(matrix.view, "");
  const float x = 1e-10F;
  const float wanted = 1e30F;
  equations.add(&x, 1, &wanted, 1);
  EXPECT_EQ(equations.solve(1e-3).scales.front(), std::numeric_limits<float>::max());
}

TEST(ScaleEquations, ScalesThatAreNoneAreRefused) {
  Random random(7);
  RandomMatrix matrix(random, Format::kTernary, 2, kCols);
  const std::vector<uint8_t> multipliers(4, 255);
  std::vector<float> row_scales = {1, 1};
  matrix.view.scales = multipliers.data();
  matrix.view.row_scales = row_scales.data();
  for (const float scale : {NAN, -1.0F, std::numeric_limits<float>::max()}) {
    row_scales[1] = scale;
    const std::string message = thrown_message([&] { ScaleEquations(matrix.view, "the matrix"); });
    EXPECT_TRUE(message.starts_with("the matrix: row 1: block 0 has scale ")) << message;
  }
}

}  // namespace
}  // namespace k3
