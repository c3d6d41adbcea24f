// What the products read, made from floats: codes in tiles, a block a vector, or scaled doubles.
#include "kernels/operations_cuda.h"
#include "kernels/quantize_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kThreads = 512;

__global__ void quantize_vectors(ActivationTiles place, const float* x, std::byte* tiles,
                                 int64_t stride_bytes, ActivationStep* steps) {
  quantize_vector<kThreads>(place, place.steps() * kLanes, x + blockIdx.x * place.cols,
                            tiles + blockIdx.x * stride_bytes, steps + blockIdx.x);
}

__global__ void scale_values(const float* x, int64_t n, double* scaled) {
  const int64_t i = thread_index();
  if (i < n) scaled[i] = scaled_activation(x[i]);
}

}  // namespace

cudaError_t quantize(Format format, const float* x, int64_t vectors, int64_t cols, std::byte* tiles,
                     int64_t stride_bytes, ActivationStep* steps, cudaStream_t stream) {
  return launch(quantize_vectors, vectors, kThreads, stream,
                ActivationTiles{.format = format, .cols = cols}, x, tiles, stride_bytes, steps);
}

cudaError_t scale_activations(const float* x, int64_t n, double* scaled, cudaStream_t stream) {
  constexpr int kScaleThreads = 128;
  return launch(scale_values, divide_up(n, kScaleThreads), kScaleThreads, stream, x, n, scaled);
}

}  // namespace k3::cuda
