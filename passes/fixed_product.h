// The solver's matrix product, in one fixed order:
//   C[i, j] = fma(A[i, k], B[k, j], C[i, j])   for k = 0, 1, 2, ...
// in float. However it is cut into tiles, threads or calls over k, every element of C sees the same
// operations in the same order, so the bits depend neither on the machine nor on the cut; and
// leaving out terms whose A[i, k] is 0 changes no value.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

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

// The left factor of a product as a list of its terms that are not 0, if these are few.
class ListedFactor {
 public:
  ListedFactor() = default;  // of no rows

  // a is [rows, depth], depth at most kMostDepth.
  ListedFactor(int64_t rows, int64_t depth, ProductFactor a);

  static constexpr int64_t kMostDepth = 256;

  bool empty() const { return terms_ == 0; }

  // C += A B, with the bits of add_product but for the sign of zeros. Returns the multiply-adds it
  // took.
  double add_product_with(int64_t cols, ProductFactor b, float* c, int64_t c_stride) const;

 private:
  int64_t rows_ = 0;
  int64_t depth_ = 0;
  int64_t terms_ = 0;
  std::vector<float> dense_;      // A itself, where its terms are many; then the lists are empty
  std::vector<int64_t> ends_;     // by row, into the next two
  std::vector<int32_t> indices_;  // depth indices, ascending in a row
  std::vector<float> values_;
  std::array<bool, kMostDepth> used_ = {};  // by depth index: whether any row has it
};

// The same with disjoint tiles of C on all threads.
void add_product_parallel(int64_t rows, int64_t cols, int64_t depth, ProductFactor a,
                          ProductFactor b, float* c, int64_t c_stride);

// The instruction set that runs it here, and the rate of fused multiply-adds that one thread
// reaches on registers alone, in multiply-adds a second: what a product can be compared with.
std::string_view product_target();
double measure_multiply_peak();

}  // namespace k3
