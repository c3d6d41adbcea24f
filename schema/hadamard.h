// The Hadamard matrix that rotations are made of. The compiler folds it into weights and the
// runtime applies it to activations, so both must mean the same one.
//
// H of order n = 2^k in Sylvester's order has the entries (-1)^(number of ones in i & j). It is
// symmetric, and H / sqrt(n) is orthogonal: applied twice it is nothing.
#pragma once

#include <cmath>
#include <cstdint>

#include "schema/host_device.h"

namespace k3 {

// The largest order in use. What spreads over a thousand channels is spread enough.
inline constexpr int64_t kLargestHadamard = 4096;

// The order of the blocks that a vector of `width` is cut into: the largest that divides it. 1 for
// odd widths: such a vector is left alone.
K3_HOST_DEVICE constexpr int64_t hadamard_block(int64_t width) {
  int64_t block = 1;
  while (block < kLargestHadamard && width % (2 * block) == 0) block *= 2;
  return block;
}

// v [order] becomes H v, without the factor: stages 1, 2, 4, ..., each sums and differences of the
// values that so many places lie apart.
K3_HOST_DEVICE inline void hadamard_butterflies(double* v, int64_t order) {
  for (int64_t stage = 1; stage < order; stage *= 2) {
    for (int64_t begin = 0; begin < order; begin += 2 * stage) {
      for (int64_t i = begin; i < begin + stage; ++i) {
        const double sum = v[i] + v[i + stage];
        v[i + stage] = v[i] - v[i + stage];
        v[i] = sum;
      }
    }
  }
}

// The factor that makes H orthogonal.
K3_HOST_DEVICE inline double hadamard_scale(int64_t order) {
  return 1.0 / std::sqrt(static_cast<double>(order));
}

}  // namespace k3
