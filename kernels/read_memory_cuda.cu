// A kernel that only reads: what all others are measured against.
#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1 << 12;
constexpr int kReads = 4;  // in flight, a thread

__device__ uint32_t fold(const uint4& words) {
  return words.x ^ words.y ^ words.z ^ words.w;
}

__global__ void read_words(const uint4* from, int64_t count, unsigned* sink) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint32_t folded = 0;
  int64_t i = thread_index();
  for (; i + (kReads - 1) * threads < count; i += kReads * threads) {
    uint4 words[kReads];
    for (int r = 0; r < kReads; ++r) words[r] = __ldcs(from + i + r * threads);
    for (int r = 0; r < kReads; ++r) folded ^= fold(words[r]);
  }
  for (; i < count; i += threads) folded ^= fold(__ldcs(from + i));
  if (folded == 0x9e3779b9u) *sink = folded;  // so that nothing is left out
}

}  // namespace

cudaError_t read_bytes(const std::byte* from, int64_t bytes, unsigned* sink, cudaStream_t stream) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint4));
  const int64_t blocks = divide_up(count, kThreads * kReads);
  return launch(read_words, blocks < kBlocks ? blocks : kBlocks, kThreads, stream,
                reinterpret_cast<const uint4*>(from), count, sink);
}

}  // namespace k3::cuda
