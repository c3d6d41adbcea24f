// Right-looking: a diagonal block is factored and inverted in double, the rows below it are
// multiplied by the inverse, and their product with themselves is taken off what remains. All but
// a share of 1 / (blocks) of the work is in products.
#include "passes/damped_factor.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "passes/parallel_product.h"
#include "schema/error.h"
#include "schema/float_product.h"
#include "schema/layout.h"

namespace k3 {
namespace {

constexpr int64_t kBlock = 128;

// L^-1 of the lower triangle of a [size, size] block in double, lower, rows kBlock apart.
std::vector<double> invert_lower(const float* block, int64_t stride, int64_t size) {
  std::vector<double> inverse(static_cast<size_t>(kBlock * kBlock));
  double* const x = inverse.data();
  for (int64_t i = 0; i < size; ++i) {
    const double pivot = block[i * stride + i];
    for (int64_t k = 0; k < i; ++k) {
      const double left = block[i * stride + k];
      for (int64_t j = 0; j <= k; ++j) x[i * kBlock + j] -= left * x[k * kBlock + j];
    }
    for (int64_t j = 0; j < i; ++j) x[i * kBlock + j] /= pivot;
    x[i * kBlock + i] = 1 / pivot;
  }
  return inverse;
}

void factor_block(float* block, int64_t stride, int64_t size, double ridge) {
  std::vector<double> l(static_cast<size_t>(size * size));
  const auto at = [&](int64_t i, int64_t j) -> double& {
    return l[static_cast<size_t>(i * size + j)];
  };
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = block[i * stride + j];
      for (int64_t k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
      at(i, j) = i == j ? std::sqrt(std::max(sum, ridge)) : sum / at(j, j);
      block[i * stride + j] = static_cast<float>(at(i, j));
    }
  }
}

struct Panel {
  std::vector<float> negated;     // [below, size], -L
  std::vector<float> transposed;  // [size, below], L^T
};

// Multiplies the rows below a diagonal block by its inverse transposed, and copies the result.
Panel solve_panel(float* below, int64_t stride, int64_t rows, int64_t size,
                  const std::vector<double>& inverse) {
  std::vector<float> upper(static_cast<size_t>(size * size));
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = i; j < size; ++j) {
      upper[static_cast<size_t>(i * size + j)] =
          static_cast<float>(inverse[static_cast<size_t>(j * kBlock + i)]);
    }
  }
  Panel panel;
  panel.negated.resize(static_cast<size_t>(rows * size));
  panel.transposed.resize(static_cast<size_t>(rows * size));
  std::vector<float> solved(static_cast<size_t>(rows * size));
  add_product_parallel(rows, size, size, {below, stride}, {upper.data(), size}, solved.data(),
                       size);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      const float value = solved[static_cast<size_t>(i * size + j)];
      below[i * stride + j] = value;
      panel.negated[static_cast<size_t>(i * size + j)] = -value;
      panel.transposed[static_cast<size_t>(j * rows + i)] = value;
    }
  }
  return panel;
}

// Takes L L^T of the panel off the lower triangle behind it.
void update_behind(float* behind, int64_t stride, int64_t rows, int64_t size, const Panel& panel) {
  constexpr int64_t kStrip = 240;
  tbb::parallel_for(int64_t{0}, divide_up(rows, kStrip), [&](int64_t strip) {
    // The long strips first.
    const int64_t begin = (divide_up(rows, kStrip) - 1 - strip) * kStrip;
    const int64_t count = std::min(kStrip, rows - begin);
    add_float_product(count, begin + count, size, {panel.negated.data() + begin * size, size},
                      {panel.transposed.data(), rows}, behind + begin * stride, stride);
  });
}

}  // namespace

double mean_diagonal(std::span<const float> gram, int64_t dim) {
  double sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += gram[static_cast<size_t>(i * dim + i)];
  return dim > 0 ? sum / static_cast<double>(dim) : 0.0;
}

void factor_damped(std::span<float> a, int64_t dim, double ridge) {
  K3_CHECK(ridge > 0 && a.size() == static_cast<size_t>(dim * dim));
  for (int64_t i = 0; i < dim; ++i) {
    float& pivot = a[static_cast<size_t>(i * dim + i)];
    pivot = static_cast<float>(pivot + ridge);
  }
  for (int64_t first = 0; first < dim; first += kBlock) {
    const int64_t size = std::min(kBlock, dim - first);
    float* const block = a.data() + first * dim + first;
    factor_block(block, dim, size, ridge);
    const int64_t rows = dim - first - size;
    if (rows == 0) break;
    float* const below = block + size * dim;
    const Panel panel = solve_panel(below, dim, rows, size, invert_lower(block, dim, size));
    update_behind(below + size, dim, rows, size, panel);
  }
}

// x L L^T = y is solved as u L^T = y, block by block from the left, then x L = u from the right.
void solve_factored(std::span<float> rows, std::span<const float> factor, int64_t dim) {
  const int64_t count = static_cast<int64_t>(rows.size()) / dim;
  float* const x = rows.data();
  const float* const l = factor.data();
  std::vector<float> piece(static_cast<size_t>(count * kBlock));
  std::vector<float> diagonal(static_cast<size_t>(kBlock * kBlock));

  // Replaces the block of columns at `first` by its product with L_bb^-T or L_bb^-1; leaves the
  // negated result in `piece`.
  const auto solve_block = [&](int64_t first, int64_t size, bool transposed) {
    const std::vector<double> inverse = invert_lower(l + first * dim + first, dim, size);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        const int64_t at = transposed ? j * kBlock + i : i * kBlock + j;
        diagonal[static_cast<size_t>(i * kBlock + j)] =
            static_cast<float>(inverse[static_cast<size_t>(at)]);
      }
    }
    std::fill(piece.begin(), piece.end(), 0.0F);
    add_product_parallel(count, size, size, {x + first, dim}, {diagonal.data(), kBlock},
                         piece.data(), kBlock);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        float& value = piece[static_cast<size_t>(i * kBlock + j)];
        x[i * dim + first + j] = value;
        value = -value;
      }
    }
  };

  std::vector<float> transposed;
  for (int64_t first = 0; first < dim; first += kBlock) {
    const int64_t size = std::min(kBlock, dim - first);
    solve_block(first, size, true);
    const int64_t end = first + size;
    const int64_t right = dim - end;
    transposed.resize(static_cast<size_t>(size * right));
    for (int64_t i = 0; i < right; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        transposed[static_cast<size_t>(j * right + i)] = l[(end + i) * dim + first + j];
      }
    }
    add_product_parallel(count, right, size, {piece.data(), kBlock}, {transposed.data(), right},
                         x + end, dim);
  }
  for (int64_t end = dim; end > 0;) {
    const int64_t first = (end - 1) / kBlock * kBlock;
    const int64_t size = end - first;
    solve_block(first, size, false);
    add_product_parallel(count, first, size, {piece.data(), kBlock}, {l + first * dim, dim}, x,
                         dim);
    end = first;
  }
}

}  // namespace k3
