#include "passes/scale_solve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

TEST(ScaleSolve, IsTheHandWorkedOneForOneGroup) {
  // t = (1, -1), H = [[2, 1], [1, 3]], w = (1, 0): t H w = 2 - 1 = 1, t H t = 2 - 2 + 3 = 3.
  RowBlock block = block_of({1, 0}, 2, 1, 1.0F);
  block.codes = {1, -1};
  const std::vector<float> gram = {2, 1, 1, 3};
  const Loss loss{gram, 2, 0};
  refresh_slopes(block, loss);
  solve_scales(block, loss);
  EXPECT_NEAR(block.scales[0], 1.0 / 3, 1e-6);
  EXPECT_EQ(block.codes, (std::vector<int8_t>{1, -1}));
}

TEST(ScaleSolve, TurnsANegativeScaleIntoOtherSigns) {
  RowBlock block = block_of({-0.5F, 0.25F}, 2, 4, 1.0F);
  block.codes = {2, -1};
  const std::vector<float> gram = identity(2);
  const Loss loss{gram, 2, 0};
  refresh_slopes(block, loss);
  solve_scales(block, loss);
  EXPECT_NEAR(block.scales[0], 0.25, 1e-6);
  EXPECT_EQ(block.codes, (std::vector<int8_t>{-2, 1}));
  EXPECT_NEAR(row_loss(block, 0), 0, 1e-6);
}

TEST(ScaleSolve, LeavesNoScaleThatCouldBeBetter) {
  constexpr int64_t kCols = 500;  // four groups, the last one of 20
  for (const int largest_code : {1, 4}) {
    RowBlock block = block_of(random_weights(2 * kCols, 1), kCols, largest_code, 0.5F);
    for (size_t i = 0; i < block.codes.size(); ++i) {
      const float weight = block.weight_row(static_cast<int64_t>(i) / kCols)[i % kCols];
      block.codes[i] = nearest_code(weight, 0.5F, largest_code);
    }
    const std::vector<float> gram = random_gram(kCols, 2 * kCols, 2);
    const Loss loss{gram, kCols, 0.3F};
    refresh_slopes(block, loss);
    solve_scales(block, loss);
    for (int64_t r = 0; r < block.rows; ++r) {
      const double reached = loss_by_definition(block, loss, r);
      EXPECT_NEAR(row_loss(block, r), reached, 1e-4 * reached);
      for (int64_t group = 0; group < block.groups; ++group) {
        const float own = block.scale_row(r)[group];
        for (const float factor : {0.99F, 1.01F}) {
          block.scale_row(r)[group] = own * factor;
          EXPECT_GT(loss_by_definition(block, loss, r), reached) << r << " " << group;
        }
        block.scale_row(r)[group] = own;
      }
    }
  }
}

TEST(ScaleSolve, KeepsTheScaleOfAGroupOfZeros) {
  RowBlock block = block_of(random_weights(320, 3), 320, 1, 0.7F);
  block.codes[5] = 1;
  const std::vector<float> gram = identity(320);
  const Loss loss{gram, 320, 0};
  refresh_slopes(block, loss);
  solve_scales(block, loss);
  EXPECT_EQ(block.scales[1], 0.7F);
  EXPECT_FLOAT_EQ(block.value(0, 5), block.weight_row(0)[5]);
}

TEST(RoundScales, StoresTheLargestAs255AndOthersAsTheNearest) {
  RowBlock block = block_of(random_weights(480, 4), 480, 1, 0.0F);
  block.scales = {0.51F, 2.55F, 0.0F};
  std::fill(block.codes.begin(), block.codes.end(), int8_t{1});
  TernaryCodes out(3, 480);
  round_scales(block, 1, out);
  EXPECT_NEAR(out.row_scales[1], 0.01, 1e-7);
  EXPECT_EQ(out.multipliers[3], 51);
  EXPECT_EQ(out.multipliers[4], 255);
  EXPECT_EQ(out.multipliers[5], 0);
  EXPECT_EQ(block.scales[0], out.row_scales[1] * 51);
  EXPECT_EQ(block.codes[479], 0) << "a code without a scale";
}

TEST(RoundScales, AnAllZeroRowHasScaleZero) {
  RowBlock block(1, 3, 1);
  TernaryCodes out(1, 3);
  round_scales(block, 0, out);
  EXPECT_EQ(out.row_scales[0], 0.0F);
  EXPECT_EQ(out.multipliers[0], 0);
}

}  // namespace
}  // namespace k3
