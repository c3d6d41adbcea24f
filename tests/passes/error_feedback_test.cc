#include "passes/error_feedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

TEST(ErrorFeedback, RoundsEachWeightAloneWhereInputsAreIndependent) {
  RowBlock block = block_of({0.9F, -0.4F, 0.6F, -2.0F}, 4, 1, 1.0F);
  ErrorFeedback(identity(4), 4, 0.1).choose_codes(block);
  EXPECT_EQ(block.codes, (std::vector<int8_t>{1, 0, 1, -1}));
}

TEST(ErrorFeedback, MakesGoodAnErrorByTheNextInput) {
  // Two inputs that are nearly the same one, the first of more energy. 0.4 becomes 0; its error,
  // -0.4, moves the second target from 0.4 to 0.4 + 0.4 (0.9 / 1.1) = 0.727, which becomes 1.
  const std::vector<float> gram = {1.1F, 0.9F, 0.9F, 1.0F};
  RowBlock block = block_of({0.4F, 0.4F}, 2, 1, 1.0F);
  ErrorFeedback(gram, 2, 1e-6).choose_codes(block);
  EXPECT_EQ(block.codes, (std::vector<int8_t>{0, 1}));
}

TEST(ErrorFeedback, StartsAtTheInputOfMostEnergy) {
  // As above with the inputs exchanged.
  const std::vector<float> gram = {1.0F, 0.9F, 0.9F, 1.1F};
  RowBlock block = block_of({0.4F, 0.4F}, 2, 1, 1.0F);
  ErrorFeedback(gram, 2, 1e-6).choose_codes(block);
  EXPECT_EQ(block.codes, (std::vector<int8_t>{1, 0}));
}

// Each code chosen by minimising the loss over all values of the inputs that follow: with A the
// part of H + r I on those and a its column, the best target of input j is
// w_j - sum over earlier i of e_i S_ij / S_jj, S the Schur complement on the inputs up to j. Solved
// here by eliminating the inputs from the last on, in double.
std::vector<int8_t> codes_by_elimination(const std::vector<float>& gram, int64_t cols, double ridge,
                                         const std::vector<float>& weights, float scale) {
  std::vector<size_t> order(static_cast<size_t>(cols));
  std::iota(order.begin(), order.end(), size_t{0});
  const auto dim = static_cast<size_t>(cols);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return gram[a * dim + a] < gram[b * dim + b]; });
  std::reverse(order.begin(), order.end());
  std::vector<double> matrix(dim * dim);
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) {
      matrix[i * dim + j] = gram[order[i] * dim + order[j]] + (i == j ? ridge : 0.0);
    }
  }
  std::vector<double> shares(dim * dim);  // [j, i < j]: S_ij / S_jj
  for (size_t j = dim; j-- > 0;) {
    const double pivot = matrix[j * dim + j];
    for (size_t i = 0; i < j; ++i) shares[j * dim + i] = matrix[j * dim + i] / pivot;
    for (size_t i = 0; i < j; ++i) {
      for (size_t k = 0; k < j; ++k) {
        matrix[i * dim + k] -= shares[j * dim + i] * matrix[j * dim + k];
      }
    }
  }
  std::vector<int8_t> codes(dim);
  std::vector<double> errors(dim);
  for (size_t j = 0; j < dim; ++j) {
    double target = weights[order[j]];
    for (size_t i = 0; i < j; ++i) target -= errors[i] * shares[j * dim + i];
    const int8_t code = nearest_code(static_cast<float>(target), scale, 1);
    codes[order[j]] = code;
    errors[j] = static_cast<double>(scale) * code - weights[order[j]];
  }
  return codes;
}

TEST(ErrorFeedback, ChoosesWhatEliminationOfTheFollowingInputsChooses) {
  constexpr int64_t kCols = 300;  // three blocks
  const std::vector<float> gram = random_gram(kCols, 3 * kCols, 1);
  const std::vector<float> weights = random_weights(kCols, 2);
  RowBlock block = block_of(weights, kCols, 1, 1.2F);
  ErrorFeedback(gram, kCols, 2.0).choose_codes(block);
  EXPECT_EQ(block.codes, codes_by_elimination(gram, kCols, 2.0, weights, 1.2F));
}

TEST(ErrorFeedback, GivesZerosToAGroupWithoutAScale) {
  RowBlock block = block_of(random_weights(320, 1), 320, 4, 0.3F);
  block.scales[1] = 0;
  ErrorFeedback(random_gram(320, 640, 2), 320, 0.5).choose_codes(block);
  EXPECT_TRUE(std::all_of(block.codes.begin() + 160, block.codes.end(),
                          [](int8_t code) { return code == 0; }));
  EXPECT_FALSE(std::all_of(block.codes.begin(), block.codes.begin() + 160,
                           [](int8_t code) { return code == 0; }));
}

}  // namespace
}  // namespace k3
