// A block of threads for a block of values. Inside a stage of hadamard_butterflies no pair of
// values knows of another, so the threads share the pairs and wait for one another between stages:
// the same sums and differences of the same doubles.
#include "kernels/hadamard.h"

#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void rotate_blocks(const float* x, int64_t block, float* y) {
  __shared__ double work[kLargestHadamard];
  x += blockIdx.x * block;
  y += blockIdx.x * block;
  for (int64_t i = threadIdx.x; i < block; i += kThreads) work[i] = static_cast<double>(x[i]);
  for (int64_t stage = 1; stage < block; stage *= 2) {
    __syncthreads();
    for (int64_t pair = threadIdx.x; pair < block / 2; pair += kThreads) {
      double* const v = &work[pair / stage * 2 * stage + pair % stage];
      const double sum = v[0] + v[stage];
      v[stage] = v[0] - v[stage];
      v[0] = sum;
    }
  }
  __syncthreads();
  const double scale = hadamard_scale(block);
  for (int64_t i = threadIdx.x; i < block; i += kThreads)
    y[i] = static_cast<float>(work[i] * scale);
}

}  // namespace

cudaError_t hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y,
                     cudaStream_t stream) {
  if (block < 1 || block > kLargestHadamard || width % block != 0) return cudaErrorInvalidValue;
  return launch(rotate_blocks, tokens * (width / block), kThreads, stream, x, block, y);
}

}  // namespace k3::cuda
