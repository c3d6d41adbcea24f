#include "passes/straight_through.h"

#include <gtest/gtest.h>

#include <vector>

#include "passes/coordinate_descent.h"
#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

TEST(StraightThrough, LeavesEachRowAtTheBestItCameBy) {
  constexpr int64_t kCols = 200;
  constexpr int64_t kRows = 4;
  RowBlock block = block_of(random_weights(kRows * kCols, 1), kCols, 1, 1.2F);
  const std::vector<float> gram = random_gram(kCols, 2 * kCols, 2);
  const Loss loss{gram, kCols, 0};
  refresh_slopes(block, loss);
  const RowBlock before = block;
  SolverOptions options;
  options.training_steps = 60;
  options.latent_rate = 0.01;
  train_straight_through(block, loss, options);
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_LT(row_loss(block, r), row_loss(before, r));
    EXPECT_NEAR(row_loss(block, r), loss_by_definition(block, loss, r), 1e-3 * row_loss(block, r));
  }
}

TEST(StraightThrough, CannotWorsenTheBestCodes) {
  // One weight that a level meets exactly: every step away is a loss and none is kept.
  RowBlock block = block_of({0.5F}, 1, 1, 0.5F);
  block.codes[0] = 1;
  const std::vector<float> gram = {1};
  const Loss loss{gram, 1, 0};
  refresh_slopes(block, loss);
  SolverOptions options;
  options.training_steps = 20;
  train_straight_through(block, loss, options);
  EXPECT_EQ(block.value(0, 0), 0.5F);
}

}  // namespace
}  // namespace k3
