// The order of exact_precedes is that of integers: selections as sortable bits above, source ids
// counted down below. Choosing k experts is then k times the largest key.
#include "kernels/router.h"

#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kScoreThreads = 64;
constexpr int kChoiceThreads = 256;

// Larger keys come first; 0 is never chosen. Distinct for distinct source ids.
__device__ uint64_t key_of(float score, float bias, int32_t source_id) {
  if (bias == -INFINITY) return 0;
  const float selection = score + bias + 0.0F;  // -0 becomes 0: the two are a tie
  const uint32_t bits = float_bits(selection);
  const uint32_t sortable = selection != selection ? 0xffffffffu
                            : (bits >> 31) != 0    ? ~bits
                                                   : bits | 0x80000000u;
  return static_cast<uint64_t>(sortable) << 32 | (0x7fffffffu - static_cast<uint32_t>(source_id));
}

__global__ void score_experts(const float* logits, const float* bias, const int32_t* source_ids,
                              int64_t experts, int64_t values, float* scores, uint64_t* keys) {
  const int64_t i = thread_index();
  if (i >= values) return;
  const int64_t expert = i % experts;
  scores[i] = exact_sigmoid(logits[i]);
  keys[i] = key_of(scores[i], bias[expert], source_ids[expert]);
}

struct Candidate {
  uint64_t key = 0;
  int64_t expert = -1;
};

__device__ Candidate best_of(const uint64_t* keys, int64_t experts) {
  Candidate best;
  for (int64_t e = threadIdx.x; e < experts; e += kChoiceThreads) {
    if (keys[e] > best.key) best = {keys[e], e};
  }
  return best;
}

__global__ void choose_experts(RouterRule rule, const float* scores, uint64_t* keys,
                               int64_t experts, int32_t* slots, float* weights) {
  __shared__ uint64_t of_warps[kChoiceThreads / kLanes];
  const int64_t k = rule.experts_per_token;
  scores += blockIdx.x * experts;
  keys += blockIdx.x * experts;
  slots += blockIdx.x * k;
  Candidate own = best_of(keys, experts);
  int64_t chosen = 0;
  while (chosen < k) {
    uint64_t largest = own.key;
    for (int stride = kLanes / 2; stride > 0; stride /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, largest, stride);
      largest = other > largest ? other : largest;
    }
    if (lane_index() == 0) of_warps[warp_index()] = largest;
    __syncthreads();
    for (const uint64_t other : of_warps) largest = other > largest ? other : largest;
    __syncthreads();
    if (largest == 0) break;  // the same in all threads
    if (own.key == largest) {
      slots[chosen] = static_cast<int32_t>(own.expert);
      keys[own.expert] = 0;  // this thread alone reads it
      own = best_of(keys, experts);
    }
    ++chosen;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    exact_route_weights(rule, scores, chosen, slots, weights + blockIdx.x * k);
  }
}

}  // namespace

cudaError_t route(const RouterRule& rule, const float* logits, const float* bias,
                  const int32_t* source_ids, int64_t tokens, int64_t experts, uint64_t* keys,
                  float* scores, int32_t* slots, float* weights, cudaStream_t stream) {
  const int64_t values = tokens * experts;
  const cudaError_t error = launch(score_experts, divide_up(values, kScoreThreads), kScoreThreads,
                                   stream, logits, bias, source_ids, experts, values, scores, keys);
  if (error != cudaSuccess) return error;
  return launch(choose_experts, tokens, kChoiceThreads, stream, rule, scores, keys, experts, slots,
                weights);
}

}  // namespace k3::cuda
