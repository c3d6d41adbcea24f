#include "passes/parallel_product.h"

#include <tbb/blocked_range2d.h>
#include <tbb/parallel_for.h>

#include <algorithm>

#include "schema/layout.h"

namespace k3 {

void add_product_parallel(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                          float* c, int64_t c_stride) {
  constexpr int64_t kRows = 240;  // whole tiles of every instruction set
  constexpr int64_t kCols = 480;
  tbb::parallel_for(
      tbb::blocked_range2d<int64_t>(0, divide_up(rows, kRows), 1, 0, divide_up(cols, kCols), 1),
      [&](const tbb::blocked_range2d<int64_t>& tiles) {
        const int64_t i = tiles.rows().begin() * kRows;
        const int64_t j = tiles.cols().begin() * kCols;
        add_float_product(std::min(rows, tiles.rows().end() * kRows) - i,
                          std::min(cols, tiles.cols().end() * kCols) - j, depth, a.at(i, 0),
                          b.at(0, j), c + i * c_stride + j, c_stride);
      });
}

}  // namespace k3
