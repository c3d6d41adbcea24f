#include "passes/output_error.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>

#include "schema/error.h"
#include "schema/float_product.h"
#include "schema/layout.h"

namespace k3 {

std::vector<double> output_energies(const float* rows, int64_t count, int64_t stride, int64_t cols,
                                    std::span<const float> gram) {
  K3_CHECK(gram.size() == static_cast<size_t>(cols * cols));
  constexpr int64_t kRows = 64;
  std::vector<double> energies(static_cast<size_t>(count));
  tbb::parallel_for(int64_t{0}, divide_up(count, kRows), [&](int64_t i) {
    const int64_t first = i * kRows;
    const int64_t height = std::min(kRows, count - first);
    std::vector<float> outputs(static_cast<size_t>(height * cols));
    add_float_product(height, cols, cols, {rows + first * stride, stride}, {gram.data(), cols},
                      outputs.data(), cols);
    for (int64_t r = 0; r < height; ++r) {
      const float* const row = rows + (first + r) * stride;
      const float* const output = outputs.data() + r * cols;
      double energy = 0;
      for (int64_t col = 0; col < cols; ++col) {
        energy += static_cast<double>(row[col]) * output[col];
      }
      energies[static_cast<size_t>(first + r)] = energy;
    }
  });
  return energies;
}

double relative_error(double lost, double energy) {
  return energy > 0 ? std::sqrt(std::max(0.0, lost) / energy) : 0.0;
}

double output_error(std::span<const float> errors, std::span<const float> weights, int64_t cols,
                    std::span<const float> gram) {
  K3_CHECK(cols > 0 && errors.size() == weights.size() &&
           errors.size() % static_cast<size_t>(cols) == 0);
  const auto sum = [&](std::span<const float> rows) {
    double total = 0;
    const int64_t count = static_cast<int64_t>(rows.size()) / cols;
    for (const double energy : output_energies(rows.data(), count, cols, cols, gram)) {
      total += energy;
    }
    return total;
  };
  return relative_error(sum(errors), sum(weights));
}

}  // namespace k3
