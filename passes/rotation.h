// The orthogonal matrices that weights are rotated by, of any width.
//
// A vector is cut into blocks of a power of two, each of which a Hadamard matrix spreads over its
// channels (schema/hadamard.h). That alone is what a runtime does to activations. A rotation that
// is folded into weights on both sides costs nothing at run time and may do more: signs before, so
// that a vector of equal values is no special one, and behind it a mixing of the blocks with each
// other, so that widths with an odd factor are spread over all channels too: K3's 7168 are 7 blocks
// of 1024. The mixing matrix is that of the discrete Hartley transform, which exists for every
// order:
//   Q = (M x H / sqrt(block)) diag(signs),   M_ij = (cos(2 pi i j / n) + sin(2 pi i j / n)) /
//   sqrt(n)
// for n blocks, x the Kronecker product.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace k3 {

struct Rotation {
  int64_t width = 0;
  int64_t block = 1;             // a power of two that divides width
  std::optional<uint64_t> seed;  // of the signs; empty: no signs and no mixing

  int64_t blocks() const { return width / block; }
};

// The most blocks that are mixed with each other, which takes a multiplication for every pair.
inline constexpr int64_t kMostMixedBlocks = 1024;

// A rotation with its tables, in double; entries are off by a few 2^-53.
class RotationMatrix {
 public:
  explicit RotationMatrix(const Rotation& rotation);

  const Rotation& rotation() const { return rotation_; }

  // v [width] becomes Q v.
  void apply(std::span<double> v) const;

  // The entries of its three factors: signs by channel, M by blocks, and of H / sqrt(block), cut
  // into panels of `panel` rows and columns that each are the Hadamard matrix of that order without
  // a factor, the factor of panel (i, j) of block (0, 0).
  double sign(int64_t channel) const;
  double mixing(int64_t i, int64_t j) const;
  double panel_factor(int64_t i, int64_t j) const;

 private:
  Rotation rotation_;
  std::vector<double> hartley_;  // of order blocks(), by i j mod blocks(); empty: no mixing
  double scale_;
};

}  // namespace k3
