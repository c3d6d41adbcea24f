// The ridge pulls W~ towards W, not towards 0: with D = C - H_q,
//   W~ = W (C + l I)(H_q + l I)^-1 = W (I + D (H_q + l I)^-1),
// so that inputs of little energy, of which the ridge is most, keep their weights, and W~ is W
// exactly where nothing is off.
#include "passes/propagated_target.h"

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

}  // namespace k3
