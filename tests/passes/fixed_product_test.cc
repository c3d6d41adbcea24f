#include "passes/fixed_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "tests/kernels/forced_target.h"
#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

// The header's definition, term by term.
void add_by_definition(int64_t rows, int64_t cols, int64_t depth, ProductFactor a, ProductFactor b,
                       float* c, int64_t c_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t k = 0; k < depth; ++k) {
        c[i * c_stride + j] = std::fma(a.data[i * a.row_stride + k * a.col_stride],
                                       b.data[k * b.row_stride + j], c[i * c_stride + j]);
      }
    }
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(FixedProduct, EveryInstructionSetGivesTheBitsOfTheDefinition) {
  // Single elements, whole tiles, edges of tiles, and more than one block of each dimension.
  for (const auto& [rows, cols, depth] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                          {8, 48, 16},
                                          {7, 47, 3},
                                          {25, 100, 257},
                                          {300, 50, 20},
                                          {5, 1, 600}}) {
    const std::vector<float> a = random_weights(rows * depth, 1);
    const std::vector<float> b = random_weights(depth * cols, 2);
    const std::vector<float> start = random_weights(rows * (cols + 3), 3);
    std::vector<float> want = start;
    add_by_definition(rows, cols, depth, {a.data(), depth}, {b.data(), cols}, want.data(),
                      cols + 3);
    for (const int64_t target : testable_targets()) {
      const ForcedTarget forced(target);
      std::vector<float> got = start;
      add_product(rows, cols, depth, {a.data(), depth}, {b.data(), cols}, got.data(), cols + 3);
      EXPECT_TRUE(same_bits(got, want)) << product_target() << " " << rows << " " << cols;
      got = start;
      add_product_parallel(rows, cols, depth, {a.data(), depth}, {b.data(), cols}, got.data(),
                           cols + 3);
      EXPECT_TRUE(same_bits(got, want)) << product_target() << " on all threads";
    }
  }
}

TEST(FixedProduct, ReadsTheLeftFactorInAnyOrder) {
  constexpr int64_t kRows = 20;
  constexpr int64_t kCols = 30;
  constexpr int64_t kDepth = 40;
  const std::vector<float> a = random_weights(kRows * kDepth, 1);  // [depth, rows]
  const std::vector<float> b = random_weights(kDepth * kCols, 2);
  std::vector<float> want(kRows * kCols);
  std::vector<float> got(kRows * kCols);
  add_by_definition(kRows, kCols, kDepth, {a.data(), 1, kRows}, {b.data(), kCols}, want.data(),
                    kCols);
  add_product(kRows, kCols, kDepth, {a.data(), 1, kRows}, {b.data(), kCols}, got.data(), kCols);
  EXPECT_TRUE(same_bits(got, want));
}

TEST(FixedProduct, LeavesOutZerosWithoutChangingAValue) {
  constexpr int64_t kRows = 19;
  constexpr int64_t kCols = 251;
  constexpr int64_t kDepth = 160;
  const std::vector<float> b = random_weights(kDepth * kCols, 2);
  for (const int64_t every : {1, 2, 7, 50, 100000}) {
    std::vector<float> a = random_weights(kRows * kDepth, 1);
    int64_t terms = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      if (static_cast<int64_t>(i) % every != every - 1) a[i] = 0;
      if (a[i] != 0) ++terms;
    }
    for (const int64_t target : testable_targets()) {
      const ForcedTarget forced(target);
      const std::vector<float> start = random_weights(kRows * kCols, 3);
      std::vector<float> want = start;
      std::vector<float> got = start;
      add_by_definition(kRows, kCols, kDepth, {a.data(), kDepth}, {b.data(), kCols}, want.data(),
                        kCols);
      const ListedFactor listed(kRows, kDepth, {a.data(), kDepth});
      EXPECT_EQ(listed.empty(), terms == 0);
      const double count = listed.add_product_with(kCols, {b.data(), kCols}, got.data(), kCols);
      EXPECT_EQ(got, want) << "one in " << every;
      const int64_t taken = every <= 2 ? kRows * kDepth : terms;
      EXPECT_EQ(count, static_cast<double>(taken * kCols)) << "one in " << every;
    }
  }
}

TEST(FixedProduct, IsComparedWithAPeakAboveIt) {
  EXPECT_GT(measure_multiply_peak(), 1e8);
  EXPECT_FALSE(product_target().empty());
}

}  // namespace
}  // namespace k3
