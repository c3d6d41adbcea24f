// The ridge pulls W~ towards W, not towards 0: with D = C - H_q,
//   W~ = W (C + l I)(H_q + l I)^-1 = W (I + D (H_q + l I)^-1),
// so that inputs of little energy, of which the ridge is most, keep their weights, and W~ is W
// exactly where nothing is off.
#include "passes/propagated_target.h"

#include <algorithm>
#include <cmath>

#include "passes/damped_factor.h"
#include "passes/parallel_product.h"
#include "schema/error.h"

namespace k3 {

std::vector<float> propagated_map(std::span<const float> gram, std::span<const float> cross_gram,
                                  int64_t cols, double strength, double damping) {
  const auto size = static_cast<size_t>(cols * cols);
  K3_CHECK(gram.size() == size && cross_gram.size() == size && damping > 0);
  std::vector<float> map(size);
  for (size_t i = 0; i < size; ++i) map[i] = cross_gram[i] - gram[i];
  std::vector<float> factor(gram.begin(), gram.end());
  const double mean = mean_diagonal(gram, cols);
  factor_damped(factor, cols, mean > 0 ? damping * mean : 1.0);
  solve_factored(map, factor, cols);
  for (float& value : map) value = static_cast<float>(strength * value);
  for (int64_t i = 0; i < cols; ++i) map[static_cast<size_t>(i * cols + i)] += 1.0F;
  return map;
}

namespace {

// tr(A M B^T) of [n, cols] matrices.
double trace_between(std::span<const float> a, std::span<const float> m, std::span<const float> b,
                     int64_t cols) {
  const int64_t rows = static_cast<int64_t>(a.size()) / cols;
  std::vector<float> product(a.size());
  add_product_parallel(rows, cols, cols, {a.data(), cols}, {m.data(), cols}, product.data(), cols);
  double sum = 0;
  for (size_t i = 0; i < product.size(); ++i) sum += static_cast<double>(product[i]) * b[i];
  return sum;
}

}  // namespace

double propagated_error(std::span<const float> weights, std::span<const float> stored, int64_t cols,
                        std::span<const float> original, std::span<const float> cross_gram,
                        std::span<const float> gram) {
  K3_CHECK(cols > 0 && weights.size() == stored.size());
  const double energy = trace_between(weights, original, weights, cols);
  const double lost = energy - 2 * trace_between(weights, cross_gram, stored, cols) +
                      trace_between(stored, gram, stored, cols);
  return energy > 0 ? std::sqrt(std::max(0.0, lost) / energy) : 0.0;
}

}  // namespace k3
