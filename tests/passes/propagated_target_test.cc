#include "passes/propagated_target.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

struct Pairs {
  std::vector<float> original;  // mean of x x^T
  std::vector<float> cross;     // of x y^T
  std::vector<float> gram;      // of y y^T
};

// y = x / 2, plus some of its own per input.
Pairs halved_inputs(size_t cols, double own) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<double> sums[3];
  for (auto& sum : sums) sum.resize(cols * cols);
  constexpr int kSamples = 2000;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> x(cols);
    std::vector<double> y(cols);
    for (size_t i = 0; i < cols; ++i) {
      x[i] = normal(random) + (i > 0 ? x[i - 1] : 0.0);
      y[i] = x[i] / 2 + own * normal(random);
    }
    for (size_t i = 0; i < cols; ++i) {
      for (size_t j = 0; j < cols; ++j) {
        sums[0][i * cols + j] += x[i] * x[j];
        sums[1][i * cols + j] += x[i] * y[j];
        sums[2][i * cols + j] += y[i] * y[j];
      }
    }
  }
  const auto mean = [](const std::vector<double>& sum) {
    std::vector<float> floats;
    for (const double value : sum) floats.push_back(static_cast<float>(value / kSamples));
    return floats;
  };
  return {mean(sums[0]), mean(sums[1]), mean(sums[2])};
}

std::vector<float> times(const std::vector<float>& row, const std::vector<float>& map) {
  std::vector<float> product(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    for (size_t j = 0; j < row.size(); ++j) product[j] += row[i] * map[i * row.size() + j];
  }
  return product;
}

// a M b^T
double product_between(const std::vector<float>& a, const std::vector<float>& m,
                       const std::vector<float>& b) {
  const std::vector<float> product = times(a, m);
  return std::inner_product(product.begin(), product.end(), b.begin(), 0.0);
}

TEST(PropagatedTarget, IsTheMatrixItselfWhereNothingIsOff) {
  const std::vector<float> gram = random_gram(20, 60, 1);
  EXPECT_EQ(propagated_map(gram, gram, 20, 1, 0.01), identity(20));
}

TEST(PropagatedTarget, UndoesWhatHappenedToTheInputs) {
  const Pairs pairs = halved_inputs(12, 0);
  const std::vector<float> map = propagated_map(pairs.gram, pairs.cross, 12, 1, 1e-5);
  for (size_t i = 0; i < 144; ++i) EXPECT_NEAR(map[i], i % 13 == 0 ? 2 : 0, 2e-2);
}

TEST(PropagatedTarget, GoesAsFarAsItsStrength) {
  const Pairs pairs = halved_inputs(12, 0);
  const std::vector<float> map = propagated_map(pairs.gram, pairs.cross, 12, 0.5, 1e-5);
  for (size_t i = 0; i < 144; ++i) EXPECT_NEAR(map[i], i % 13 == 0 ? 1.5 : 0, 2e-2);
}

TEST(PropagatedTarget, IsTheLeastSquaresSolution) {
  const Pairs pairs = halved_inputs(12, 0.7);
  const std::vector<float> weights = random_weights(12, 2);
  std::vector<float> target = times(weights, propagated_map(pairs.gram, pairs.cross, 12, 1, 1e-6));
  // The mean of |w x - w^ y|^2.
  const auto error = [&](const std::vector<float>& stored) {
    return product_between(weights, pairs.original, weights) -
           2 * product_between(weights, pairs.cross, stored) +
           product_between(stored, pairs.gram, stored);
  };
  const double least = error(target);
  EXPECT_LT(least, error(weights));
  for (float& value : target) {
    const float own = value;
    for (const float change : {-0.1F, 0.1F}) {
      value = own + change;
      EXPECT_GT(error(target), least);
    }
    value = own;
  }
}

}  // namespace
}  // namespace k3
