#include "kernels/team_product.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "schema/layout.h"

namespace k3 {

void add_team_product(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                      float* c, int64_t c_stride) {
  // Whole tiles of every instruction set, and small enough that a batch of a few dozen rows is
  // several blocks.
  constexpr int64_t kRows = 48;
  constexpr int64_t kCols = 288;
  const int64_t blocks_across = divide_up(cols, kCols);
  const int64_t blocks_down = divide_up(rows, kRows);
  // Sixteen multiply-adds or so make one of parallel_ranges' steps.
  const int64_t cost = std::min(rows, kRows) * std::min(cols, kCols) * depth / 16;
  parallel_ranges(blocks_down * blocks_across, cost, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t i = block / blocks_across * kRows;
      const int64_t j = block % blocks_across * kCols;
      add_float_product(std::min(kRows, rows - i), std::min(kCols, cols - j), depth, a.at(i, 0),
                        b.at(0, j), c + i * c_stride + j, c_stride);
    }
  });
}

}  // namespace k3
