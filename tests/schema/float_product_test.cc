#include "schema/float_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "tests/kernels/bit_equality.h"
#include "tests/kernels/forced_target.h"
#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

// The header's definition, term by term.
void add_by_definition(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                       float* c, int64_t c_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      float& sum = c[i * c_stride + j];
      for (int64_t k = 0; k < depth; ++k) sum = std::fma(*a.at(i, k).data, *b.at(k, j).data, sum);
    }
  }
}

// Single elements, whole tiles, edges of tiles of one vector and of more, and more than one block
// of each dimension; both factors in both orders.
TEST(FloatProduct, EveryInstructionSetGivesTheBitsOfTheDefinition) {
  for (const auto& [rows, cols, depth] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                          {8, 48, 16},
                                          {7, 47, 3},
                                          {9, 65, 5},
                                          {25, 100, 257},
                                          {300, 50, 20},
                                          {5, 1, 600}}) {
    const std::vector<float> a = random_weights(rows * depth, 1);
    const std::vector<float> b = random_weights(depth * cols, 2);
    const std::vector<float> start = random_weights(rows * (cols + 3), 3);
    for (const bool exchanged : {false, true}) {
      const FloatMatrix left =
          exchanged ? FloatMatrix{a.data(), rows}.transposed() : FloatMatrix{a.data(), depth};
      const FloatMatrix right =
          exchanged ? FloatMatrix{b.data(), depth}.transposed() : FloatMatrix{b.data(), cols};
      std::vector<float> want = start;
      add_by_definition(rows, cols, depth, left, right, want.data(), cols + 3);
      for (const int64_t target : testable_targets()) {
        const ForcedTarget forced(target);
        std::vector<float> got = start;
        add_float_product(rows, cols, depth, left, right, got.data(), cols + 3);
        EXPECT_TRUE(same_bits(got, want)) << float_product_target() << " " << rows << " " << cols;
      }
    }
  }
}

TEST(FloatProduct, AddsTheTermsOfAListInOrder) {
  constexpr int64_t kCols = 163;
  const std::vector<float> values = random_weights(4, 1);
  const std::vector<int64_t> ends = {2, 2, 4};  // the second row has none
  const std::vector<int32_t> indices = {0, 4, 1, 4};
  const bool used[] = {true, true, false, false, true};
  std::vector<float> a(15);
  for (size_t at = 0; at < 4; ++at)
    a[(at < 2 ? 0 : 10) + static_cast<size_t>(indices[at])] = values[at];
  const std::vector<float> b = random_weights(5 * kCols, 2);
  const std::vector<float> start = random_weights(3 * kCols, 3);
  std::vector<float> want = start;
  add_by_definition(3, kCols, 5, {a.data(), 5}, {b.data(), kCols}, want.data(), kCols);
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    std::vector<float> got = start;
    add_listed_product({3, 5, ends.data(), indices.data(), values.data(), used}, kCols,
                       {b.data(), kCols}, got.data(), kCols);
    EXPECT_TRUE(same_bits(got, want)) << float_product_target();
  }
}

TEST(FloatProduct, IsComparedWithAPeakAboveIt) {
  EXPECT_GT(measure_multiply_peak(), 1e8);
  EXPECT_FALSE(float_product_target().empty());
}

}  // namespace
}  // namespace k3
