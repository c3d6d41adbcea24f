// Quantizes one vector with all threads of a block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/activation_tiles.h"
#include "kernels/byte_products.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {

// The largest magnitude of the vector, as bits: those of floats without sign are ordered as the
// floats are, and whatever is not finite comes last. The same in every thread.
template <int kThreads>
__device__ inline uint32_t largest_magnitude(const float* x, int64_t cols) {
  __shared__ uint32_t of_warps[kThreads / kLanes];
  uint32_t largest = 0;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  for (int stride = kLanes / 2; stride > 0; stride /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, stride);
    largest = other > largest ? other : largest;
  }
  if (lane_index() == 0) of_warps[warp_index()] = largest;
  __syncthreads();
  for (const uint32_t other : of_warps) largest = other > largest ? other : largest;
  return largest;
}

// Writes the tiles of chunks [0, chunks) of x [place.cols], and its step: exact_quantize's codes.
// Whole steps of chunks, for who reads by 32; fewer, for who does not. x is visible to the block.
template <int kThreads>
__device__ inline void quantize_vector(const ActivationTiles& place, int64_t chunks, const float* x,
                                       std::byte* tiles, ActivationStep* step_of_vector) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  const uint32_t magnitude = largest_magnitude<kThreads>(x, place.cols);
  ActivationStep step;
  step.finite = magnitude < kInfinity;
  if (step.finite) step.exponent = activation_exponent(float_from_bits(magnitude));
  if (threadIdx.x == 0) *step_of_vector = step;

  auto* sums = reinterpret_cast<int32_t*>(tiles + place.sums_offset());
  if (place.has_sums()) {
    for (int64_t c = threadIdx.x; c < chunks; c += kThreads) sums[c] = 0;
    __syncthreads();
  }
  for (int64_t i = threadIdx.x; i < chunks * place.pieces(); i += kThreads) {
    const int64_t chunk = i % chunks;
    const int64_t piece = i / chunks;
    const int64_t input = place.piece_input(chunk, piece);
    uint32_t high[4] = {};
    uint32_t low[4] = {};
    int sum = 0;
#pragma unroll
    for (int j = 0; j < kPieceInputs; ++j) {
      const bool exists = step.finite && input + j < place.cols;
      const int code = exists ? activation_code_in_float(x[input + j], step.exponent) : 0;
      const SplitCode split = split_code(code);
      sum += code;
      high[j / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(split.high)) << (8 * (j % 4));
      low[j / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(split.low)) << (8 * (j % 4));
    }
    std::byte* at = tiles + place.piece_offset(chunk, piece, 0);
    *reinterpret_cast<uint4*>(at) = {high[0], high[1], high[2], high[3]};
    *reinterpret_cast<uint4*>(at + kTileBytes) = {low[0], low[1], low[2], low[3]};
    if (place.has_sums()) atomicAdd(&sums[chunk], sum);
  }
}

}  // namespace k3::cuda
