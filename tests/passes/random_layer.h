// Small weights and Gram matrices for the solver's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "passes/row_block.h"

namespace k3 {

inline std::vector<float> random_weights(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> weights(static_cast<size_t>(count));
  for (float& weight : weights) weight = normal(random);
  return weights;
}

// The mean of x x^T over `samples` inputs that share a few directions, so that errors can be made
// good: x = z + 2 (a sum over neighbours of z). [cols, cols], exactly symmetric.
inline std::vector<float> random_gram(int64_t cols, int64_t samples, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> sum(static_cast<size_t>(cols * cols));
  std::vector<double> x(static_cast<size_t>(cols));
  for (int64_t sample = 0; sample < samples; ++sample) {
    double shared = 0;
    for (double& value : x) {
      const double own = normal(random);
      shared = 0.9 * shared + own;
      value = own + 2 * shared;
    }
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x.size(); ++j) sum[i * x.size() + j] += x[i] * x[j];
    }
  }
  std::vector<float> gram;
  for (const double value : sum) {
    gram.push_back(static_cast<float>(value / static_cast<double>(samples)));
  }
  return gram;
}

inline std::vector<float> identity(int64_t cols) {
  std::vector<float> gram(static_cast<size_t>(cols * cols));
  for (int64_t i = 0; i < cols; ++i) gram[static_cast<size_t>(i * cols + i)] = 1;
  return gram;
}

// A block with these weights [rows, cols], all scales `scale` and all codes 0.
inline RowBlock block_of(const std::vector<float>& weights, int64_t cols, int largest_code,
                         float scale) {
  RowBlock block(static_cast<int64_t>(weights.size()) / cols, cols, largest_code);
  for (int64_t r = 0; r < block.rows; ++r) {
    std::copy_n(weights.data() + r * cols, cols, block.weight_row(r));
  }
  std::fill(block.scales.begin(), block.scales.end(), scale);
  return block;
}

// The loss of a row by its definition, in double.
inline double loss_by_definition(const RowBlock& block, const Loss& loss, int64_t row) {
  std::vector<double> errors;
  for (int64_t col = 0; col < block.cols; ++col) {
    errors.push_back(static_cast<double>(block.value(row, col)) - block.weight_row(row)[col]);
  }
  double sum = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    sum += loss.ridge * errors[i] * errors[i];
    for (size_t j = 0; j < errors.size(); ++j) {
      sum += errors[i] * loss.gram[i * errors.size() + j] * errors[j];
    }
  }
  return sum;
}

}  // namespace k3
