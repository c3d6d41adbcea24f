// Sine and cosine are our own: libm's last bits differ between systems, and a pack's bytes must
// not.
#include "passes/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "schema/error.h"
#include "schema/hadamard.h"
#include "schema/mix_bits.h"

namespace k3 {
namespace {

// The Taylor series for |x| <= pi / 4, where these many terms leave less than 2^-60.
constexpr int kTerms = 10;

double sine(double x) {
  double sum = 1;
  for (int k = kTerms; k > 0; --k) sum = 1 - x * x / (2 * k * (2 * k + 1)) * sum;
  return x * sum;
}

double cosine(double x) {
  double sum = 1;
  for (int k = kTerms; k > 0; --k) sum = 1 - x * x / (2 * k * (2 * k - 1)) * sum;
  return sum;
}

// cos + sin of 2 pi k / n, for 0 <= k < n: a quarter turn and a rest of at most an eighth, split in
// integers.
double cosine_and_sine(int64_t k, int64_t n) {
  const int64_t quarter = (8 * k + n) / (2 * n);
  const double rest =
      std::numbers::pi / 2 * static_cast<double>(4 * k - quarter * n) / static_cast<double>(n);
  switch (quarter % 4) {
    case 0:
      return cosine(rest) + sine(rest);
    case 1:
      return cosine(rest) - sine(rest);
    case 2:
      return -cosine(rest) - sine(rest);
    default:
      return sine(rest) - cosine(rest);
  }
}

bool has_negative_entry(int64_t i, int64_t j) {
  return std::popcount(static_cast<uint64_t>(i & j)) % 2 != 0;
}

}  // namespace

RotationMatrix::RotationMatrix(const Rotation& rotation)
    : rotation_(rotation), scale_(hadamard_scale(rotation.block)) {
  K3_CHECK(rotation.block >= 1 && rotation.width % rotation.block == 0);
  if (!rotation.seed) return;
  const int64_t blocks = rotation.blocks();
  K3_CHECK(blocks <= kMostMixedBlocks);
  hartley_.resize(static_cast<size_t>(blocks));
  const double length = std::sqrt(static_cast<double>(blocks));
  for (int64_t k = 0; k < blocks; ++k) {
    hartley_[static_cast<size_t>(k)] = cosine_and_sine(k, blocks) / length;
  }
}

void RotationMatrix::apply(std::span<double> v) const {
  const auto block = static_cast<size_t>(rotation_.block);
  K3_CHECK(v.size() == static_cast<size_t>(rotation_.width));
  for (size_t i = 0; i < v.size() && rotation_.seed; ++i) v[i] *= sign(static_cast<int64_t>(i));
  for (size_t begin = 0; begin < v.size(); begin += block) {
    hadamard_butterflies(&v[begin], rotation_.block);
  }
  for (double& value : v) value *= scale_;
  if (hartley_.size() <= 1) return;
  const std::vector<double> spread(v.begin(), v.end());
  std::fill(v.begin(), v.end(), 0.0);
  for (int64_t i = 0; i < rotation_.blocks(); ++i) {
    double* const to = &v[static_cast<size_t>(i) * block];
    for (int64_t j = 0; j < rotation_.blocks(); ++j) {
      const double factor = mixing(i, j);
      const double* const from = &spread[static_cast<size_t>(j) * block];
      for (size_t k = 0; k < block; ++k) to[k] += factor * from[k];
    }
  }
}

double RotationMatrix::sign(int64_t channel) const {
  if (!rotation_.seed) return 1;
  constexpr int kTopBit = 63;
  return split_mix(*rotation_.seed, static_cast<uint64_t>(channel)) >> kTopBit == 0 ? 1 : -1;
}

double RotationMatrix::mixing(int64_t i, int64_t j) const {
  if (hartley_.empty()) return i == j ? 1 : 0;
  return hartley_[static_cast<size_t>(i * j % rotation_.blocks())];
}

double RotationMatrix::panel_factor(int64_t i, int64_t j) const {
  return has_negative_entry(i, j) ? -scale_ : scale_;
}

}  // namespace k3
