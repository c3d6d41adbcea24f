#include "passes/parallel_product.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

TEST(ParallelProduct, GivesTheBitsOfOneThread) {
  constexpr int64_t kRows = 250;  // more than a tile of each
  constexpr int64_t kCols = 500;
  constexpr int64_t kDepth = 7;
  const std::vector<float> a = random_weights(kDepth * kRows, 1);
  const std::vector<float> b = random_weights(kDepth * kCols, 2);
  const FloatMatrix left = FloatMatrix{a.data(), kRows}.transposed();
  std::vector<float> want = random_weights(kRows * (kCols + 3), 3);
  std::vector<float> got = want;
  add_float_product(kRows, kCols, kDepth, left, {b.data(), kCols}, want.data(), kCols + 3);
  add_product_parallel(kRows, kCols, kDepth, left, {b.data(), kCols}, got.data(), kCols + 3);
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace k3
