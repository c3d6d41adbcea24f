#include "kernels/rms_norm.h"

#include "kernels/block_sum_cuda.h"
#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void norm_rows(const float* x, int64_t x_stride, const float* weight, int64_t width,
                          double epsilon, float* y, int64_t y_stride) {
  x += blockIdx.x * x_stride;
  y += blockIdx.x * y_stride;
  double squares[1];
  block_lane_sums<1>(
      width,
      [x](int64_t i, double(&terms)[1]) {
        const double value = widen(x[i]);
        terms[0] = value * value;
      },
      squares);
  const double inverse_rms = inverse_rms_of(squares[0], width, epsilon);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    y[i] = exact_rms_norm(x[i], inverse_rms, weight[i]);
  }
}

}  // namespace

cudaError_t rms_norm(const float* x, int64_t x_stride, const float* weight, int64_t tokens,
                     int64_t width, double epsilon, float* y, int64_t y_stride,
                     cudaStream_t stream) {
  return launch(norm_rows, tokens, kThreads, stream, x, x_stride, weight, width, epsilon, y,
                y_stride);
}

}  // namespace k3::cuda
