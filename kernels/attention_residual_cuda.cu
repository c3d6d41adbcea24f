// Two launches: a block for each score, then a thread for each channel of the mix.
#include "kernels/attention_residual.h"

#include "kernels/block_sum_cuda.h"
#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kScoreThreads = 256;
constexpr int kMixThreads = 128;

struct Sources {
  const float* at[kMostSources];
  int64_t count;
};

__global__ void score_sources(Sources sources, const float* norm, const float* proj, int64_t hidden,
                              double epsilon, double* scores) {
  const float* source =
      sources.at[blockIdx.x % sources.count] + blockIdx.x / sources.count * hidden;
  double sums[2];
  block_lane_sums<2>(
      hidden,
      [=](int64_t i, double(&terms)[2]) {
        const double value = widen(source[i]);
        terms[0] = value * (widen(norm[i]) * widen(proj[i]));
        terms[1] = value * value;
      },
      sums);
  if (threadIdx.x == 0) scores[blockIdx.x] = sums[0] * inverse_rms_of(sums[1], hidden, epsilon);
}

// exact_source_weights, the exponentials side by side; `weights` is the block's.
__device__ void weigh_sources(const double* scores, int64_t count, double* weights) {
  const int64_t j = threadIdx.x;
  double maximum = scores[0];
  for (int64_t i = 1; i < count; ++i) maximum = scores[i] > maximum ? scores[i] : maximum;
  double own = 0;
  if (j < count) weights[j] = own = exp_in_double(scores[j] - maximum);
  __syncthreads();
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += weights[i];
  __syncthreads();
  if (j < count) weights[j] = own / sum;
  __syncthreads();
}

__global__ void mix_channels(Sources sources, const double* scores, int64_t hidden,
                             int64_t blocks_per_token, float* y) {
  __shared__ double weights[kMostSources];
  const int64_t token = blockIdx.x / blocks_per_token;
  weigh_sources(scores + token * sources.count, sources.count, weights);
  const int64_t channel = blockIdx.x % blocks_per_token * kMixThreads + threadIdx.x;
  if (channel >= hidden) return;
  const int64_t at = token * hidden + channel;
  double sum = 0;
  for (int64_t j = 0; j < sources.count; ++j) {
    sum = std::fma(weights[j], widen(sources.at[j][at]), sum);
  }
  y[at] = static_cast<float>(sum);
}

}  // namespace

cudaError_t attention_residual_mix(const float* const* sources, int64_t count, const float* norm,
                                   const float* proj, int64_t tokens, int64_t hidden,
                                   double epsilon, double* weights, float* y, cudaStream_t stream) {
  static_assert(kMostSources <= kMixThreads);
  if (count < 1 || count > kMostSources) return cudaErrorInvalidValue;
  Sources list = {};
  list.count = count;
  for (int64_t j = 0; j < count; ++j) list.at[j] = sources[j];
  const cudaError_t error = launch(score_sources, tokens * count, kScoreThreads, stream, list, norm,
                                   proj, hidden, epsilon, weights);
  if (error != cudaSuccess) return error;
  const int64_t blocks = divide_up(hidden, kMixThreads);
  return launch(mix_channels, tokens * blocks, kMixThreads, stream, list, weights, hidden, blocks,
                y);
}

}  // namespace k3::cuda
