// What the GPU kernels share: a launch, and sums over the lanes of a warp.
//
// The 32 lanes of a warp are the 32 lanes of the lane order (lane_sum.h): each goes through its
// terms in ascending order, and shuffles do the tree.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/lane_sum.h"
#include "kernels/scaled_double.h"

namespace k3::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Launches blocks of `threads` threads, a multiple of 32; nothing when there is no block.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), int64_t blocks, int threads, cudaStream_t stream,
                   Arguments... arguments) {
  if (blocks == 0) return cudaSuccess;
  if (blocks > 0x7fffffff) return cudaErrorInvalidConfiguration;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

__device__ inline int lane_index() {
  return static_cast<int>(threadIdx.x) % kLanes;
}
__device__ inline int warp_index() {
  return static_cast<int>(threadIdx.x) / kLanes;
}
// The running thread's number in the grid.
__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// The tree of the lane order; complete in lane 0. Integers may use it for want of an order.
template <class Number>
__device__ inline Number add_lanes(Number value) {
  for (int stride = kLanes / 2; stride > 0; stride /= 2) {
    value += __shfl_down_sync(kAllLanes, value, static_cast<unsigned>(stride));
  }
  return value;
}

// lane_sum by a warp, whose lanes all call it; complete in lane 0.
template <class Term>
__device__ inline double warp_lane_sum(int64_t count, const Term& term) {
  double sum = 0;
  for (int64_t j = lane_index(); j < count; j += kLanes) sum += term(j);
  return add_lanes(sum);
}

// Lane 0's value in every lane.
template <class Value>
__device__ inline Value from_first_lane(Value value) {
  return __shfl_sync(kAllLanes, value, 0);
}

}  // namespace k3::cuda
