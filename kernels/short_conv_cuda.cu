// A thread a channel, through the tokens: it alone reads and slides its channel's window.
#include "kernels/short_conv.h"

#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kThreads = 64;

__global__ void convolve_channels(const float* x, const float* weight, int64_t tokens,
                                  int64_t channels, int64_t taps, float* window, float* y) {
  const int64_t c = thread_index();
  if (c >= channels) return;
  for (int64_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float input = short_conv_input(x, window, t, tap, channels, taps)[c];
      sum = exact_short_conv_step(sum, weight[c * taps + tap], input);
    }
    y[t * channels + c] = exact_short_conv_end(sum);
  }
  for (int64_t row = 0; row < taps - 1; ++row) {
    window[row * channels + c] = short_conv_input(x, window, tokens, row, channels, taps)[c];
  }
}

}  // namespace

cudaError_t short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                       int64_t taps, float* window, float* y, cudaStream_t stream) {
  return launch(convolve_channels, divide_up(channels, kThreads), kThreads, stream, x, weight,
                tokens, channels, taps, window, y);
}

}  // namespace k3::cuda
