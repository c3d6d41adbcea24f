#include "passes/damped_factor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

TEST(DampedFactor, IsTheHandWorkedOne) {
  // [[3, 2], [2, 2]] + 1 = [[4, 2], [2, 3]] = L L^T with L = [[2, 0], [1, sqrt 2]].
  std::vector<float> a = {3, 77, 2, 2};  // 77 lies above the diagonal and is not read
  factor_damped(a, 2, 1);
  EXPECT_EQ(a[0], 2.0F);
  EXPECT_EQ(a[2], 1.0F);
  EXPECT_FLOAT_EQ(a[3], std::sqrt(2.0F));
}

TEST(DampedFactor, MultipliesBackToTheMatrixOverSeveralBlocks) {
  constexpr int64_t kDim = 300;
  const std::vector<float> gram = random_gram(kDim, 2 * kDim, 1);
  const double ridge = 0.01 * mean_diagonal(gram, kDim);
  std::vector<float> factor = gram;
  factor_damped(factor, kDim, ridge);
  for (int64_t i = 0; i < kDim; i += 7) {
    for (int64_t j = 0; j <= i; j += 3) {
      double sum = i == j ? -ridge : 0.0;
      for (int64_t k = 0; k <= j; ++k) {
        sum += static_cast<double>(factor[static_cast<size_t>(i * kDim + k)]) *
               factor[static_cast<size_t>(j * kDim + k)];
      }
      EXPECT_NEAR(sum, gram[static_cast<size_t>(i * kDim + j)], 2e-3) << i << " " << j;
    }
  }
}

TEST(DampedFactor, TakesASingularMatrixForWhatTheRidgeMakesOfIt) {
  // All inputs are the same one: rank 1, and rounding alone decides the signs of the pivots.
  constexpr int64_t kDim = 200;
  std::vector<float> a(kDim * kDim, 1e6F);
  factor_damped(a, kDim, 1e-3);
  for (int64_t i = 0; i < kDim; ++i) {
    EXPECT_TRUE(a[static_cast<size_t>(i * kDim + i)] >= 0.03F) << i;
  }
}

TEST(DampedFactor, SolvesWhatItFactored) {
  constexpr int64_t kDim = 290;
  const std::vector<float> gram = random_gram(kDim, 2 * kDim, 2);
  const double ridge = 0.05 * mean_diagonal(gram, kDim);
  std::vector<float> factor = gram;
  factor_damped(factor, kDim, ridge);
  const std::vector<float> want = random_weights(3 * kDim, 3);
  std::vector<float> x(want.size());  // want (gram + ridge)
  for (size_t row = 0; row < 3; ++row) {
    for (size_t j = 0; j < kDim; ++j) {
      double sum = ridge * want[row * kDim + j];
      for (size_t k = 0; k < kDim; ++k) {
        sum += static_cast<double>(want[row * kDim + k]) * gram[k * kDim + j];
      }
      x[row * kDim + j] = static_cast<float>(sum);
    }
  }
  solve_factored(x, factor, kDim);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], want[i], 2e-3) << i;
}

}  // namespace
}  // namespace k3
