#include "kernels/float_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

// Shapes with tails in every direction and more than one block of each, A and B in both orders.
TEST(FloatProduct, EveryElementAddsItsTermsInOrderOnEveryTarget) {
  struct Shape {
    int64_t rows, cols, depth;
  };
  for (const Shape& shape : {Shape{1, 1, 1}, {50, 33, 300}, {101, 259, 7}, {48, 64, 256}}) {
    const int64_t rows = shape.rows;
    const int64_t cols = shape.cols;
    const int64_t depth = shape.depth;
    const auto a = normal_values(rows * depth, 1);
    const auto b = normal_values(depth * cols, 2);
    const auto start = normal_values(rows * (cols + 1), 3);
    for (const bool exchanged : {false, true}) {
      const FloatMatrix left =
          exchanged ? FloatMatrix{a.data(), rows}.transposed() : FloatMatrix{a.data(), depth};
      const FloatMatrix right =
          exchanged ? FloatMatrix{b.data(), depth}.transposed() : FloatMatrix{b.data(), cols};
      auto want = start;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
          float& sum = want[static_cast<size_t>(i * (cols + 1) + j)];
          for (int64_t k = 0; k < depth; ++k) {
            sum = std::fma(*left.at(i, k).data, *right.at(k, j).data, sum);
          }
        }
      }
      on_every_target([&] {
        auto c = start;
        add_float_product(rows, cols, depth, left, right, c.data(), cols + 1);
        expect_same_bits(c, want);
      });
    }
  }
}

}  // namespace
}  // namespace k3
