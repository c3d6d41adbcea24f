#include "passes/coordinate_descent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

constexpr DescentLimits kToTheEnd{0.0, 100};

void randomize_codes(RowBlock& block, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int levels = 2 * block.largest_code + 1;
  for (int8_t& code : block.codes) {
    code = static_cast<int8_t>(static_cast<int>(random() % static_cast<uint64_t>(levels)) -
                               block.largest_code);
  }
}

// The least loss of a row over all codes, with the scales it has.
double least_loss(RowBlock block, const Loss& loss) {
  const int levels = 2 * block.largest_code + 1;
  const auto count = static_cast<int64_t>(std::pow(levels, block.cols));
  double least = INFINITY;
  for (int64_t number = 0; number < count; ++number) {
    int64_t rest = number;
    for (int8_t& code : block.codes) {
      code = static_cast<int8_t>(rest % levels - block.largest_code);
      rest /= levels;
    }
    least = std::min(least, loss_by_definition(block, loss, 0));
  }
  return least;
}

TEST(CoordinateDescent, MovesOneCodeToTheBottomOfItsParabola) {
  // h = 2, w = 0.8 and scale 1: codes 0 and 1 lose 2 x 0.64 and 2 x 0.04.
  RowBlock block = block_of({0.8F}, 1, 1, 1.0F);
  const std::vector<float> gram = {2};
  const Loss loss{gram, 1, 0};
  refresh_slopes(block, loss);
  EXPECT_FLOAT_EQ(block.slopes[0], -1.6F);
  descend_codes(block, loss, kToTheEnd);
  EXPECT_EQ(block.codes[0], 1);
  EXPECT_FLOAT_EQ(block.slopes[0], 0.4F);
  EXPECT_NEAR(row_loss(block, 0), 0.08, 1e-6);
}

TEST(CoordinateDescent, FindsTheBestCodesOfAllWhereInputsAreIndependent) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RowBlock block = block_of(random_weights(6, seed), 6, 1, 0.9F);
    const std::vector<float> gram = identity(6);
    const Loss loss{gram, 6, 0.25F};
    randomize_codes(block, seed);
    refresh_slopes(block, loss);
    descend_codes(block, loss, kToTheEnd);
    EXPECT_NEAR(row_loss(block, 0), least_loss(block, loss), 1e-5);
  }
}

TEST(CoordinateDescent, NoSweepRaisesAnyRowsLoss) {
  constexpr int64_t kCols = 400;
  constexpr int64_t kRows = 5;
  for (const int largest_code : {1, 4}) {
    RowBlock block = block_of(random_weights(kRows * kCols, 1), kCols, largest_code, 0.7F);
    const std::vector<float> gram = random_gram(kCols, 2 * kCols, 2);
    const Loss loss{gram, kCols, 0.1F};
    randomize_codes(block, 3);
    refresh_slopes(block, loss);
    std::vector<double> before;
    for (int64_t r = 0; r < kRows; ++r) before.push_back(loss_by_definition(block, loss, r));
    for (int sweep = 0; sweep < 12; ++sweep) {
      descend_codes(block, loss, {0.0, 1});
      for (int64_t r = 0; r < kRows; ++r) {
        const double now = loss_by_definition(block, loss, r);
        EXPECT_LE(now, before[static_cast<size_t>(r)] * (1 + 1e-6)) << sweep;
        before[static_cast<size_t>(r)] = now;
      }
    }
  }
}

TEST(CoordinateDescent, EndsWhereNoSingleCodeCanImprove) {
  constexpr int64_t kCols = 200;
  RowBlock block = block_of(random_weights(kCols, 4), kCols, 4, 0.4F);
  const std::vector<float> gram = random_gram(kCols, 2 * kCols, 5);
  const Loss loss{gram, kCols, 0};
  refresh_slopes(block, loss);
  EXPECT_LT(descend_codes(block, loss, kToTheEnd).sweeps, 100);
  const double reached = loss_by_definition(block, loss, 0);
  for (size_t col = 0; col < kCols; ++col) {
    const int8_t own = block.codes[col];
    for (int8_t code = -4; code <= 4; ++code) {
      block.codes[col] = code;
      EXPECT_GE(loss_by_definition(block, loss, 0), reached * (1 - 1e-5)) << col;
    }
    block.codes[col] = own;
  }
}

TEST(CoordinateDescent, KeepsTheSlopesTrue) {
  constexpr int64_t kCols = 330;
  RowBlock block = block_of(random_weights(2 * kCols, 6), kCols, 1, 1.0F);
  const std::vector<float> gram = random_gram(kCols, 2 * kCols, 7);
  const Loss loss{gram, kCols, 0.5F};
  refresh_slopes(block, loss);
  descend_codes(block, loss, kToTheEnd);
  anneal_codes(block, loss, 0, 5, 0.5);
  const std::vector<float> followed = block.slopes;
  refresh_slopes(block, loss);
  for (size_t i = 0; i < followed.size(); ++i) EXPECT_NEAR(followed[i], block.slopes[i], 2e-2);
}

TEST(CoordinateDescent, ASettledRowIsLeftAlone) {
  constexpr int64_t kCols = 64;
  RowBlock block = block_of(random_weights(kCols, 8), kCols, 1, 1.0F);
  const std::vector<float> gram = random_gram(kCols, 2 * kCols, 9);
  const Loss loss{gram, kCols, 0};
  refresh_slopes(block, loss);
  EXPECT_EQ(descend_codes(block, loss, {1.0, 100}).sweeps, 1);  // all codes may change
  EXPECT_GT(descend_codes(block, loss, kToTheEnd).sweeps, 0);
  const std::vector<int8_t> settled = block.codes;
  const DescentWork again = descend_codes(block, loss, kToTheEnd);
  EXPECT_EQ(again.sweeps, 1);
  EXPECT_EQ(again.multiplications, 0);
  EXPECT_EQ(block.codes, settled);
}

TEST(CoordinateDescent, IgnoresAnInputThatIsAlwaysZero) {
  RowBlock block = block_of({0.9F, 0.9F}, 2, 1, 1.0F);
  const std::vector<float> gram = {0, 0, 0, 1};
  const Loss loss{gram, 2, 0};
  refresh_slopes(block, loss);
  descend_codes(block, loss, kToTheEnd);
  anneal_codes(block, loss, 0, 3, 1.0);
  EXPECT_EQ(block.codes[0], 0);
}

TEST(Annealing, FindsTheBestCodesOfAllMoreThanTwiceAsOftenAsDescent) {
  int found_by_descent = 0;
  int found = 0;
  constexpr int kCases = 40;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    constexpr int64_t kCols = 8;
    RowBlock block = block_of(random_weights(kCols, seed), kCols, 1, 1.2F);
    const std::vector<float> gram = random_gram(kCols, 40, seed + 100);
    const Loss loss{gram, kCols, 0};
    refresh_slopes(block, loss);
    descend_codes(block, loss, kToTheEnd);
    const double least = least_loss(block, loss);
    if (row_loss(block, 0) < least * (1 + 1e-4)) ++found_by_descent;
    anneal_codes(block, loss, 0, 300, 1.0);
    descend_codes(block, loss, kToTheEnd);
    if (row_loss(block, 0) < least * (1 + 1e-4)) ++found;
  }
  EXPECT_GE(found, 2 * found_by_descent);
  EXPECT_GT(found, kCases / 2);
}

TEST(Annealing, ARowGetsTheSameNoiseInAnyBlock) {
  constexpr int64_t kCols = 170;
  const std::vector<float> weights = random_weights(3 * kCols, 10);
  const std::vector<float> gram = random_gram(kCols, 2 * kCols, 11);
  const Loss loss{gram, kCols, 0.1F};
  RowBlock all = block_of(weights, kCols, 1, 1.0F);
  RowBlock last = block_of({weights.begin() + 2 * kCols, weights.end()}, kCols, 1, 1.0F);
  for (RowBlock* block : {&all, &last}) refresh_slopes(*block, loss);
  anneal_codes(all, loss, 5, 20, 0.5);
  anneal_codes(last, loss, 7, 20, 0.5);
  EXPECT_TRUE(std::equal(last.codes.begin(), last.codes.end(), all.code_row(2)));
}

}  // namespace
}  // namespace k3
