// A sum in lane order with a whole block's threads.
//
// Only 32 lanes may add, but what is slow is all before it: the loads, and terms in double. So all
// threads make terms, a tile at a time, and one warp for each sum adds them up.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/warp_cuda.h"

namespace k3::cuda {

// sums[i] = lane_sum of the i-th term of terms(j, double (&)[kSums]), j in [0, count), in every
// thread. The block has at least kSums warps.
template <int kSums, class Terms>
__device__ inline void block_lane_sums(int64_t count, const Terms& terms, double (&sums)[kSums]) {
  constexpr int64_t kTile = 1024;  // a multiple of 32, so a lane stays a lane from tile to tile
  __shared__ double tile[kSums][kTile];
  __shared__ double totals[kSums];
  const int warp = warp_index();
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t size = count - begin < kTile ? count - begin : kTile;
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      double values[kSums];
      terms(begin + i, values);
      for (int s = 0; s < kSums; ++s) tile[s][i] = values[s];
    }
    __syncthreads();
    if (warp < kSums) {
      for (int64_t i = lane_index(); i < size; i += kLanes) sum += tile[warp][i];
    }
    __syncthreads();
  }
  if (warp < kSums) {
    sum = add_lanes(sum);
    if (lane_index() == 0) totals[warp] = sum;
  }
  __syncthreads();
  for (int s = 0; s < kSums; ++s) sums[s] = totals[s];
}

}  // namespace k3::cuda
