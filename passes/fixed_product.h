// The solver's matrix product, in one fixed order:
//   C[i, j] = fma(A[i, k], B[k, j], C[i, j])   for k = 0, 1, 2, ...
// in float. However it is cut into tiles, threads or calls over k, every element of C sees the same
// operations in the same order, so the bits depend neither on the machine nor on the cut; and
// leaving out terms whose A[i, k] is 0 changes no value.
#pragma once

#include <cstdint>
#include <string_view>

namespace k3 {

// Element [i, j] is data[i * row_stride + j * col_stride].
struct ProductFactor {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

// C += A B on this thread. A is [rows, depth], B is [depth, cols] with col_stride 1, C is
// [rows, cols] with rows c_stride apart, and overlaps neither.
void add_product(int64_t rows, int64_t cols, int64_t depth, ProductFactor a, ProductFactor b,
                 float* c, int64_t c_stride);

inline constexpr int64_t kMostSparseDepth = 256;

// The same for a depth of at most kMostSparseDepth and an A of mostly zeros, which cost nothing.
// Returns the multiply-adds it took.
double add_sparse_product(int64_t rows, int64_t cols, int64_t depth, ProductFactor a,
                          ProductFactor b, float* c, int64_t c_stride);

// The same with disjoint tiles of C on all threads.
void add_product_parallel(int64_t rows, int64_t cols, int64_t depth, ProductFactor a,
                          ProductFactor b, float* c, int64_t c_stride);

// The instruction set that runs it here, and the rate of fused multiply-adds that one thread
// reaches on registers alone, in multiply-adds a second: what a product can be compared with.
std::string_view product_target();
double measure_multiply_peak();

}  // namespace k3
