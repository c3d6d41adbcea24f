#include "tests/bench/synthetic_layer.h"

#include <tbb/parallel_for.h>

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <random>

#include "passes/parallel_product.h"

namespace k3 {
namespace {

std::vector<float> normal_floats(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> floats(static_cast<size_t>(count));
  for (float& value : floats) value = normal(random);
  return floats;
}

std::vector<float> gram_of(const std::vector<float>& samples, int64_t count, int64_t cols) {
  std::vector<float> gram(static_cast<size_t>(cols * cols));
  add_product_parallel(cols, cols, count, {samples.data(), 1, cols}, {samples.data(), cols},
                       gram.data(), cols);
  for (float& value : gram) value /= static_cast<float>(count);
  return gram;
}

// F [cols, cols] with which x = z F, z white, has the asked distribution.
std::vector<float> input_factor(const SyntheticShape& shape, std::mt19937_64& random) {
  const int64_t cols = shape.cols;
  const std::vector<float> noise = normal_floats(cols * cols, random);
  const Eigen::Map<const Eigen::MatrixXf> matrix(noise.data(), cols, cols);
  const Eigen::MatrixXf basis = Eigen::HouseholderQR<Eigen::MatrixXf>(matrix).householderQ();
  std::vector<float> factor(static_cast<size_t>(cols * cols));
  for (int64_t i = 0; i < cols; ++i) {
    const auto deviation =
        static_cast<float>(std::pow(static_cast<double>(i + 1), -shape.alpha / 2));
    for (int64_t j = 0; j < cols; ++j) {
      factor[static_cast<size_t>(i * cols + j)] = deviation * basis(j, i);
    }
  }
  if (shape.outlier_channels) {
    std::vector<float> gains = normal_floats(cols, random);
    for (float& gain : gains) gain = std::exp(0.5F * gain);
    for (int64_t i = 0; i < cols / 100; ++i) {
      gains[random() % static_cast<uint64_t>(cols)] *= 10;
    }
    for (size_t i = 0; i < factor.size(); ++i) factor[i] *= gains[i % static_cast<size_t>(cols)];
  }
  return factor;
}

std::vector<float> sample_gram(const std::vector<float>& factor, int64_t count, int64_t cols,
                               std::mt19937_64& random) {
  const std::vector<float> white = normal_floats(count * cols, random);
  std::vector<float> samples(white.size());
  add_product_parallel(count, cols, cols, {white.data(), cols}, {factor.data(), cols},
                       samples.data(), cols);
  return gram_of(samples, count, cols);
}

void transpose(std::vector<float>& matrix, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      std::swap(matrix[static_cast<size_t>(i * dim + j)], matrix[static_cast<size_t>(j * dim + i)]);
    }
  }
}

}  // namespace

void rotate_rows(std::vector<float>& rows, int64_t block) {
  const float unit = 1 / std::sqrt(static_cast<float>(block));
  const int64_t blocks = static_cast<int64_t>(rows.size()) / block;
  tbb::parallel_for(int64_t{0}, blocks, [&](int64_t b) {
    float* const x = rows.data() + b * block;
    for (int64_t half = 1; half < block; half *= 2) {
      for (int64_t i = 0; i < block; ++i) {
        if ((i & half) != 0) continue;
        const float left = x[i];
        const float right = x[i + half];
        x[i] = left + right;
        x[i + half] = left - right;
      }
    }
    for (int64_t i = 0; i < block; ++i) x[i] *= unit;
  });
}

SyntheticLayer make_layer(const SyntheticShape& shape) {
  std::mt19937_64 random(shape.seed);
  SyntheticLayer layer;
  layer.weights = normal_floats(shape.rows * shape.cols, random);
  std::vector<float> factor = input_factor(shape, random);
  if (shape.rotated) {
    rotate_rows(layer.weights, shape.cols);
    rotate_rows(factor, shape.cols);
  }
  layer.true_gram.resize(factor.size());
  add_product_parallel(shape.cols, shape.cols, shape.cols, {factor.data(), 1, shape.cols},
                       {factor.data(), shape.cols}, layer.true_gram.data(), shape.cols);
  layer.fit_gram = sample_gram(factor, 16 * shape.cols, shape.cols, random);
  layer.select_gram = sample_gram(factor, 8 * shape.cols, shape.cols, random);
  return layer;
}

std::vector<float> mixed_gram(int64_t cols, uint64_t seed) {
  constexpr int64_t kBlock = 1024;
  std::mt19937_64 random(seed);
  std::vector<float> gram(static_cast<size_t>(cols * cols));
  for (int64_t i = 0; i < cols; ++i) {
    gram[static_cast<size_t>(i * cols + i)] = 1 / static_cast<float>(i + 1);
  }
  for (int64_t round = 0; round < 2; ++round) {
    // A signed permutation, so that the second round mixes what the first kept apart.
    std::vector<size_t> order(static_cast<size_t>(cols));
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<float> signs(static_cast<size_t>(cols));
    for (float& sign : signs) sign = (random() & 1U) != 0 ? 1.0F : -1.0F;
    std::vector<float> line(static_cast<size_t>(cols));
    for (int side = 0; side < 2; ++side) {
      for (int64_t i = 0; i < cols; ++i) {
        float* const row = gram.data() + i * cols;
        for (size_t j = 0; j < line.size(); ++j) line[j] = signs[j] * row[order[j]];
        std::copy(line.begin(), line.end(), row);
      }
      rotate_rows(gram, kBlock);
      transpose(gram, cols);
    }
  }
  // Rounding leaves the two halves apart in their last bits.
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      gram[static_cast<size_t>(i * cols + j)] = gram[static_cast<size_t>(j * cols + i)];
    }
  }
  return gram;
}

}  // namespace k3
