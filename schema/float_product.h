// A product of float matrices in one fixed order:
//   C[i, j] = fma(A[i, k], B[k, j], C[i, j])   for k = 0, 1, 2, ...
// However it is cut into tiles, threads or calls over k, every element of C sees the same
// operations in the same order, so the bits depend neither on the machine nor on the cut; and
// leaving out terms whose A[i, k] is 0 changes no value. The compiler's solver and the runtime's
// gradients both run on it: neither multiplies rows of codes.
#pragma once

#include <cstdint>
#include <string_view>

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

// C += A B on this thread. A is [rows, depth], B is [depth, cols], C is [rows, cols] with rows
// c_stride apart, and overlaps neither.
void add_float_product(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                       float* c, int64_t c_stride);

// The terms of a matrix [rows, depth] that are not 0, row by row.
struct ListedTerms {
  // The most depth that a list may have.
  static constexpr int64_t kMostDepth = 256;

  int64_t rows = 0;
  int64_t depth = 0;
  const int64_t* ends = nullptr;     // [rows], into the next two: where a row's terms end
  const int32_t* indices = nullptr;  // depth indices, ascending in a row
  const float* values = nullptr;
  const bool* used = nullptr;  // [depth]: whether any row has it
};

// The same with A as a list. b.col_stride is 1.
void add_listed_product(const ListedTerms& a, int64_t cols, FloatMatrix b, float* c,
                        int64_t c_stride);

// The instruction set that runs them here, and the rate of fused multiply-adds that one thread
// reaches on registers alone, in multiply-adds a second: what a product can be compared with.
std::string_view float_product_target();
double measure_multiply_peak();

}  // namespace k3
