#include "tests/gpu/comparison_kernels.h"

#include "kernels/warp_cuda.h"

namespace k3::test {
namespace {

constexpr int kThreads = 256;

__global__ void fill(uint32_t seed, uint32_t mask, uint32_t bits, int64_t words, uint32_t* to) {
  const int64_t i = cuda::thread_index();
  if (i >= words) return;
  uint64_t z = (static_cast<uint64_t>(seed) << 40) + static_cast<uint64_t>(i);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  to[i] = (static_cast<uint32_t>(z >> 32) & mask) | bits;
}

__global__ void multiply_rows(MatrixView weights, ActivationVector x, float* y) {
  const int64_t row = cuda::thread_index();
  if (row < weights.rows) {
    y[row] = exact_output(weights, row, exact_row_sum(weights, row, x), x.step);
  }
}

}  // namespace

cudaError_t fill_words(uint32_t seed, uint32_t mask, uint32_t bits, int64_t words, uint32_t* to,
                       cudaStream_t stream) {
  return cuda::launch(fill, divide_up(words, kThreads), kThreads, stream, seed, mask, bits, words,
                      to);
}

cudaError_t multiply_thread_per_row(const MatrixView& weights, const ActivationVector& x, float* y,
                                    cudaStream_t stream) {
  return cuda::launch(multiply_rows, divide_up(weights.rows, kThreads), kThreads, stream, weights,
                      x, y);
}

}  // namespace k3::test
