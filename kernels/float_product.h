// A product of float matrices in one fixed order:
//   C[i, j] = fma(A[i, k], B[k, j], C[i, j])   for k = 0, 1, 2, ...
// Every element of C sees the same operations however it is cut into tiles, threads or calls over
// k, so the bits depend on neither. What gradients run on: nothing in them is a row of codes.
#pragma once

#include <cstdint>

namespace k3 {

// Element [i, j] is data[i * row_stride + j * col_stride].
struct FloatMatrix {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;

  // The same numbers with rows and columns exchanged.
  FloatMatrix transposed() const { return {data, col_stride, row_stride}; }
  // What starts at row i and column j.
  FloatMatrix at(int64_t i, int64_t j) const {
    return {data + i * row_stride + j * col_stride, row_stride, col_stride};
  }
};

// C += A B. A is [rows, depth], B is [depth, cols], C is [rows, cols] with rows c_stride apart, and
// overlaps neither.
void add_float_product(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                       float* c, int64_t c_stride);

}  // namespace k3
