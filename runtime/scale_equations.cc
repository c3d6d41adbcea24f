// With z(b) = sum of code x input over block b, a row's output is sum of scale(b) z(b). Z'Z and Z'y
// are summed in double over tokens in their order, a row by one thread: at K3's width 45 scales a
// row, 8 kB of sums. z itself is made in float, eight lanes wide, good to 1e-6, far below what a
// multiplier of eight bits can express.
#include "runtime/scale_equations.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/decode_rows.h"
#include "schema/error.h"

namespace k3 {
namespace {

constexpr size_t kLanes = 8;
constexpr auto kLargestScale = static_cast<double>(std::numeric_limits<float>::max());

double product(const int8_t* codes, const float* x, size_t count) {
  std::array<float, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<float>(codes[i + lane]) * x[i + lane];
    }
  }
  for (; i < count; ++i) lanes[i % kLanes] += static_cast<float>(codes[i]) * x[i];
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

// Solves a x = b in place by Cholesky; a is [n, n], positive definite, its lower half is used.
void solve_in_place(std::vector<double>& a, std::vector<double>& b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? std::sqrt(sum) : sum / a[j * n + j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k * n + i] * b[k];
    b[i] /= a[i * n + i];
  }
}

}  // namespace

ScaleEquations::ScaleEquations(const MatrixView& matrix, const std::string& subject)
    : rows_(matrix.rows), cols_(matrix.cols), blocks_(matrix.scales_per_row) {
  K3_CHECK(lies_in_blocks160(matrix.format));
  scales_ = decode_scales(matrix, subject);
  codes_.reserve(static_cast<size_t>(rows_ * cols_));
  std::vector<float> codes(static_cast<size_t>(cols_));
  for (int64_t row = 0; row < rows_; ++row) {
    decode_codes(matrix, row, codes.data());
    for (float code : codes) codes_.push_back(static_cast<int8_t>(code));
  }
  products_.resize(static_cast<size_t>(rows_ * (blocks_ + 1) * blocks_));
  squares_.resize(static_cast<size_t>(rows_));
}

void ScaleEquations::add(const float* x, int64_t stride, const float* wanted, int64_t tokens) {
  tbb::parallel_for(int64_t{0}, rows_, [&](int64_t row) {
    const auto blocks = static_cast<size_t>(blocks_);
    std::vector<double> z(blocks);
    double* const sums = products(row);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto y = static_cast<double>(wanted[t * rows_ + row]);
      for (size_t block = 0; block < blocks; ++block) {
        const int64_t begin = static_cast<int64_t>(block) * kBlockInputs;
        const auto count = static_cast<size_t>(std::min(kBlockInputs, cols_ - begin));
        z[block] = product(&codes_[static_cast<size_t>(row * cols_ + begin)],
                           x + t * stride + begin, count);
      }
      for (size_t i = 0; i < blocks; ++i) {
        for (size_t j = 0; j < blocks; ++j) sums[i * blocks + j] += z[i] * z[j];
        sums[blocks * blocks + i] += z[i] * y;
      }
      squares_[static_cast<size_t>(row)] += y * y;
    }
  });
}

ScaleEquations::Solution ScaleEquations::solve(double ridge) const {
  const auto blocks = static_cast<size_t>(blocks_);
  Solution solution;
  for (size_t row = 0; row < static_cast<size_t>(rows_); ++row) {
    const std::span sums(products_.data() + row * (blocks + 1) * blocks, (blocks + 1) * blocks);
    const std::span old(scales_.data() + row * blocks, blocks);
    const auto left_over = [&](const auto& scales) {
      double error = squares_[row];
      for (size_t i = 0; i < blocks; ++i) {
        const auto s = static_cast<double>(scales[i]);
        error -= 2 * s * sums[blocks * blocks + i];
        for (size_t j = 0; j < blocks; ++j) {
          error += s * static_cast<double>(scales[j]) * sums[i * blocks + j];
        }
      }
      return std::max(0.0, error);
    };
    double trace = 0;
    for (size_t i = 0; i < blocks; ++i) trace += sums[i * blocks + i];
    const double held = ridge * trace / static_cast<double>(blocks);
    std::vector<float> scales(old.begin(), old.end());
    if (held > 0) {
      std::vector<double> a(sums.begin(), sums.begin() + static_cast<int64_t>(blocks * blocks));
      std::vector<double> b(sums.begin() + static_cast<int64_t>(blocks * blocks), sums.end());
      for (size_t i = 0; i < blocks; ++i) {
        a[i * blocks + i] += held;
        b[i] += held * static_cast<double>(old[i]);
      }
      solve_in_place(a, b);
      for (size_t i = 0; i < blocks; ++i) {
        scales[i] = static_cast<float>(std::min(kLargestScale, std::max(0.0, b[i])));
      }
    }
    solution.wanted += squares_[row];
    solution.before += left_over(old);
    solution.after += left_over(scales);
    solution.scales.insert(solution.scales.end(), scales.begin(), scales.end());
  }
  return solution;
}

}  // namespace k3
