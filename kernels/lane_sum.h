// The one order in which doubles are added wherever the exact numerics add floating-point numbers.
//
// 32 lanes: lane l adds the terms j = l, l + 32, l + 64, ... in ascending order; then a tree with
// strides 16, 8, 4, 2, 1. A CPU holds the lanes in four AVX-512 or eight AVX2 registers, a GPU in
// one warp, and both give the same bits.
#pragma once

#include <cstdint>

#include "schema/host_device.h"

namespace k3 {

inline constexpr int kLanes = 32;

// Adds the 32 lanes by the tree; leaves partial sums in `lanes`.
K3_HOST_DEVICE inline double reduce_lanes(double* lanes) {
  for (int stride = kLanes / 2; stride > 0; stride /= 2) {
    for (int l = 0; l < stride; ++l) lanes[l] += lanes[l + stride];
  }
  return lanes[0];
}

// The sum of term(j) for j in [0, count), in lane order. `term` returns a double.
template <class Term>
K3_HOST_DEVICE inline double lane_sum(int64_t count, const Term& term) {
  double lanes[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(j + l);
  }
  for (int l = 0; j + l < count; ++l) lanes[l] += term(j + l);
  return reduce_lanes(lanes);
}

}  // namespace k3
