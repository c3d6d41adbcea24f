#include "kernels/team_product.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

// Shapes of one block and of several in each direction.
TEST(TeamProduct, GivesTheBitsOfOneThreadOnEveryTarget) {
  struct Shape {
    int64_t rows, cols, depth;
  };
  for (const Shape& shape : {Shape{1, 1, 1}, {50, 33, 300}, {101, 259, 7}, {48, 64, 256}}) {
    const auto& [rows, cols, depth] = shape;
    const auto a = normal_values(rows * depth, 1);
    const auto b = normal_values(depth * cols, 2);
    const auto start = normal_values(rows * (cols + 1), 3);
    const FloatMatrix left{a.data(), depth};
    const FloatMatrix right = FloatMatrix{b.data(), depth}.transposed();
    auto want = start;
    add_float_product(rows, cols, depth, left, right, want.data(), cols + 1);
    on_every_target([&, rows = rows, cols = cols, depth = depth] {
      auto c = start;
      add_team_product(rows, cols, depth, left, right, c.data(), cols + 1);
      expect_same_bits(c, want);
    });
  }
}

}  // namespace
}  // namespace k3
