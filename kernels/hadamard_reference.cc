#include "kernels/hadamard.h"

#include <bit>
#include <vector>

namespace k3::reference {

void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) {
  std::vector<double> input(static_cast<size_t>(block));
  for (int64_t begin = 0; begin < tokens * width; begin += block) {
    input.assign(x + begin, x + begin + block);
    for (int64_t i = 0; i < block; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < block; ++j) {
        const bool negative = std::popcount(static_cast<uint64_t>(i & j)) % 2 != 0;
        sum += negative ? -input[static_cast<size_t>(j)] : input[static_cast<size_t>(j)];
      }
      y[begin + i] = static_cast<float>(sum / std::sqrt(static_cast<double>(block)));
    }
  }
}

}  // namespace k3::reference
