#include "passes/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "schema/mix_bits.h"

namespace k3 {
namespace {

std::vector<double> some_vector(int64_t width, uint64_t seed) {
  std::vector<double> v(static_cast<size_t>(width));
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = static_cast<double>(split_mix(seed, i) >> 11) * 0x1p-52 - 1;
  }
  return v;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The definition of schema/README.md, entry by entry, with the library's sine and cosine.
double entry(const Rotation& rotation, int64_t row, int64_t col) {
  const double length = std::sqrt(static_cast<double>(rotation.block));
  const int64_t mask = rotation.block - 1;
  const int ones = std::popcount(static_cast<uint64_t>(row & col & mask));
  double value = (ones % 2 == 0 ? 1 : -1) / length;
  const int64_t i = row / rotation.block;
  const int64_t j = col / rotation.block;
  if (!rotation.seed) return i == j ? value : 0;
  const auto blocks = static_cast<double>(rotation.blocks());
  const double turn = 2 * std::numbers::pi * static_cast<double>(i * j) / blocks;
  value *= (std::cos(turn) + std::sin(turn)) / std::sqrt(blocks);
  const bool negative = split_mix(*rotation.seed, static_cast<uint64_t>(col)) >> 63 != 0;
  return negative ? -value : value;
}

TEST(Rotation, IsItsDefinition) {
  for (const Rotation& rotation : {Rotation{12, 4, 5}, Rotation{56, 8, 0}, Rotation{15, 1, 1},
                                   Rotation{16, 16, 2}, Rotation{12, 4, {}}}) {
    const std::vector<double> v = some_vector(rotation.width, 3);
    std::vector<double> got = v;
    RotationMatrix(rotation).apply(got);
    for (int64_t row = 0; row < rotation.width; ++row) {
      double want = 0;
      for (int64_t col = 0; col < rotation.width; ++col) {
        want += entry(rotation, row, col) * v[static_cast<size_t>(col)];
      }
      EXPECT_NEAR(got[static_cast<size_t>(row)], want, 1e-14) << rotation.width << " " << row;
    }
  }
}

TEST(Rotation, KeepsLengthsAndAnglesAtEveryWidth) {
  // K3's stream and query rank, nano's, odd's.
  for (const Rotation& rotation :
       {Rotation{7168, 1024, 0}, Rotation{1536, 512, 0}, Rotation{256, 256, 0}, Rotation{96, 32, 0},
        Rotation{219, 1, 0}, Rotation{110, 2, 9}, Rotation{6144, 2048, {}}}) {
    const RotationMatrix matrix(rotation);
    std::vector<double> a = some_vector(rotation.width, 1);
    std::vector<double> b = some_vector(rotation.width, 2);
    const double scale = product(a, a);
    const double angle = product(a, b);
    matrix.apply(a);
    matrix.apply(b);
    EXPECT_NEAR(product(a, a) / scale, 1, 1e-14) << rotation.width;
    EXPECT_NEAR(product(a, b) / scale, angle / scale, 1e-14) << rotation.width;
  }
}

// The most that one channel can put into one channel; 1 would be no rotation at all.
TEST(Rotation, SpreadsOneChannelOverAll) {
  for (const Rotation& rotation :
       {Rotation{7168, 1024, 0}, Rotation{219, 1, 0}, Rotation{256, 256, 0}}) {
    std::vector<double> v(static_cast<size_t>(rotation.width));
    v[1] = 1;
    RotationMatrix(rotation).apply(v);
    const double even = 1 / std::sqrt(static_cast<double>(rotation.width));
    for (const double value : v) EXPECT_LE(std::abs(value), 1.5 * even);
  }
}

TEST(Rotation, AnotherSeedIsAnotherRotation) {
  std::vector<double> a = some_vector(64, 1);
  std::vector<double> b = a;
  RotationMatrix({64, 64, 1}).apply(a);
  RotationMatrix({64, 64, 2}).apply(b);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace k3
