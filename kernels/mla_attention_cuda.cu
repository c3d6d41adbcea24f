// Five launches: absorbed queries, scores, softmax, contexts, values. Everything that the contract
// adds in double is spread so that one thread or one warp keeps each sum's order.
//
// The number of positions is in device memory: grids are made for the most there may be, and blocks
// beyond what is there end at once.
#include "kernels/mla_attention.h"

#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kLanes;
constexpr int kScoreHeads = 4;  // that share a warp's reads of a cache row
constexpr int kSoftmaxThreads = 256;

// The lent memory of one token.
struct Scratch {
  MlaShape shape;
  int64_t positions = 0;
  int64_t first_token = 0;
  std::byte* begin = nullptr;

  // How many positions the token sees.
  __device__ int64_t visible(const int64_t* first_position, int64_t token) const {
    return *first_position + first_token + token + 1;
  }

  K3_HOST_DEVICE int64_t blocks() const { return divide_up(positions, kAttentionBlock); }
  K3_HOST_DEVICE int64_t block_sums_offset() const { return shape.heads * shape.cache_width() * 8; }
  K3_HOST_DEVICE int64_t denominators_offset() const {
    return block_sums_offset() + shape.heads * blocks() * 8;
  }
  K3_HOST_DEVICE int64_t scores_offset() const { return denominators_offset() + shape.heads * 8; }
  K3_HOST_DEVICE int64_t contexts_offset() const {
    return scores_offset() + shape.heads * positions * 4;
  }
  K3_HOST_DEVICE int64_t token_bytes() const {
    return align_up(contexts_offset() + shape.heads * shape.latent * 4, 16);
  }

  // [latent + extra] of one token and head, floats as doubles.
  __device__ double* query(int64_t token, int64_t head) const {
    return reinterpret_cast<double*>(begin + token * token_bytes()) + head * shape.cache_width();
  }
  __device__ double* block_sums(int64_t token, int64_t head) const {
    return reinterpret_cast<double*>(begin + token * token_bytes() + block_sums_offset()) +
           head * blocks();
  }
  __device__ double* denominator(int64_t token, int64_t head) const {
    return reinterpret_cast<double*>(begin + token * token_bytes() + denominators_offset()) + head;
  }
  __device__ float* scores(int64_t token, int64_t head) const {  // then the probabilities
    return reinterpret_cast<float*>(begin + token * token_bytes() + scores_offset()) +
           head * positions;
  }
  __device__ float* context(int64_t token, int64_t head) const {
    return reinterpret_cast<float*>(begin + token * token_bytes() + contexts_offset()) +
           head * shape.latent;
  }
};

// Takes the fastest part off an index of blocks.
__device__ int64_t take(int64_t& index, int64_t count) {
  const int64_t part = index % count;
  index /= count;
  return part;
}

struct WideBf16Row {
  const uint16_t* codes;
  __device__ explicit WideBf16Row(const std::byte* row)
      : codes(reinterpret_cast<const uint16_t*>(row)) {}
  __device__ double operator[](int64_t i) const { return widen(decode_bf16(codes[i])); }
};
struct WideF32Row {
  const float* values;
  __device__ explicit WideF32Row(const std::byte* row)
      : values(reinterpret_cast<const float*>(row)) {}
  __device__ double operator[](int64_t i) const { return widen(values[i]); }
};

template <class Row>
__global__ void absorb_queries(Scratch scratch, const float* q, MatrixView kv_b) {
  const MlaShape& shape = scratch.shape;
  int64_t block = blockIdx.x;
  const int64_t column =
      take(block, divide_up(shape.cache_width(), kThreads)) * kThreads + threadIdx.x;
  const int64_t head = take(block, shape.heads);
  const int64_t token = block;
  if (column >= shape.cache_width()) return;
  const float* query = q + (token * shape.heads + head) * shape.query_dim();
  double* absorbed = scratch.query(token, head) + column;
  if (column >= shape.latent) {
    *absorbed = widen(query[shape.content_dim + column - shape.latent]);
    return;
  }
  double sum = 0;
  for (int64_t d = 0; d < shape.content_dim; ++d) {
    const Row row = row_of<Row>(kv_b, shape.key_row(head) + d);
    sum = std::fma(widen(query[d]), row[column], sum);  // the product is exact
  }
  *absorbed = widen(static_cast<float>(sum));
}

__global__ void score_positions(Scratch scratch, const float* cache, const int64_t* first_position,
                                double scale) {
  const MlaShape& shape = scratch.shape;
  int64_t block = blockIdx.x;
  const int64_t position =
      take(block, divide_up(scratch.positions, kWarps)) * kWarps + warp_index();
  const int64_t first_head = take(block, divide_up(shape.heads, kScoreHeads)) * kScoreHeads;
  const int64_t token = block;
  if (position >= scratch.visible(first_position, token)) return;
  const double* queries[kScoreHeads];
  for (int h = 0; h < kScoreHeads; ++h) {
    const int64_t head = first_head + h;
    queries[h] = scratch.query(token, head < shape.heads ? head : shape.heads - 1);
  }
  const float* row = cache + position * shape.cache_width();
  double sums[kScoreHeads] = {};
#pragma unroll 2
  for (int64_t j = lane_index(); j < shape.cache_width(); j += kLanes) {
    const double value = widen(row[j]);
#pragma unroll
    for (int h = 0; h < kScoreHeads; ++h) sums[h] = std::fma(queries[h][j], value, sums[h]);
  }
#pragma unroll
  for (int h = 0; h < kScoreHeads; ++h) {
    const double sum = add_lanes(sums[h]);
    if (lane_index() == 0 && first_head + h < shape.heads) {
      scratch.scores(token, first_head + h)[position] = static_cast<float>(sum * scale);
    }
  }
}

// The largest score. One that is NaN is passed over, unless it is the first: either way every
// output of the head becomes NaN, by this number or by that position's probability.
__device__ float largest_score(const float* scores, int64_t positions) {
  __shared__ float of_warps[kSoftmaxThreads / kLanes];
  float maximum = scores[0];
  for (int64_t s = threadIdx.x; s < positions; s += kSoftmaxThreads) {
    maximum = scores[s] > maximum ? scores[s] : maximum;
  }
  for (int stride = kLanes / 2; stride > 0; stride /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, maximum, stride);
    maximum = other > maximum ? other : maximum;
  }
  if (lane_index() == 0) of_warps[warp_index()] = maximum;
  __syncthreads();
  for (const float other : of_warps) maximum = other > maximum ? other : maximum;
  return maximum;
}

__global__ void softmax_positions(Scratch scratch, const int64_t* first_position) {
  int64_t block = blockIdx.x;
  const int64_t head = take(block, scratch.shape.heads);
  const int64_t token = block;
  const int64_t positions = scratch.visible(first_position, token);
  float* scores = scratch.scores(token, head);
  const float maximum = largest_score(scores, positions);
  for (int64_t s = threadIdx.x; s < positions; s += kSoftmaxThreads) {
    scores[s] = exact_mla_probability(scores[s], maximum);
  }
  __syncthreads();
  double* block_sums = scratch.block_sums(token, head);
  const int64_t blocks = divide_up(positions, kAttentionBlock);
  for (int64_t b = warp_index(); b < blocks; b += kSoftmaxThreads / kLanes) {
    const int64_t first = b * kAttentionBlock;
    const int64_t left = positions - first;
    const double sum =
        warp_lane_sum(left < kAttentionBlock ? left : kAttentionBlock,
                      [=](int64_t s) { return static_cast<double>(scores[first + s]); });
    if (lane_index() == 0) block_sums[b] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += block_sums[b];
  *scratch.denominator(token, head) = total;
}

// One column's lane_sum over a block of `count` positions; rows are `width` floats apart. The lanes
// are named by constants alone, which keeps them in registers.
__device__ double block_context(const float* probabilities, const float* column, int64_t width,
                                int64_t count) {
  double lanes[kLanes];
#pragma unroll
  for (int l = 0; l < kLanes; ++l) {
    lanes[l] = 0;
    for (int64_t s = l; s < count; s += kLanes) {
      lanes[l] = std::fma(widen(probabilities[s]), widen(column[s * width]), lanes[l]);
    }
  }
#pragma unroll
  for (int stride = kLanes / 2; stride > 0; stride /= 2) {
#pragma unroll
    for (int l = 0; l < kLanes / 2; ++l) {
      if (l < stride) lanes[l] += lanes[l + stride];
    }
  }
  return lanes[0];
}

__global__ void __launch_bounds__(kThreads)
    add_contexts(Scratch scratch, const float* cache, const int64_t* first_position) {
  const MlaShape& shape = scratch.shape;
  int64_t block = blockIdx.x;
  const int64_t column = take(block, divide_up(shape.latent, kThreads)) * kThreads + threadIdx.x;
  const int64_t head = take(block, shape.heads);
  const int64_t token = block;
  if (column >= shape.latent) return;
  const int64_t positions = scratch.visible(first_position, token);
  const float* probabilities = scratch.scores(token, head);
  const int64_t width = shape.cache_width();
  double total = 0;
  for (int64_t first = 0; first < positions; first += kAttentionBlock) {
    const int64_t left = positions - first;
    total += block_context(probabilities + first, cache + first * width + column, width,
                           left < kAttentionBlock ? left : kAttentionBlock);
  }
  scratch.context(token, head)[column] =
      static_cast<float>(total / *scratch.denominator(token, head));
}

template <class Row>
__global__ void multiply_values(Scratch scratch, MatrixView kv_b, int64_t tokens, float* o) {
  const MlaShape& shape = scratch.shape;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (output >= tokens * shape.heads * shape.v_dim) return;
  int64_t rest = output;
  const int64_t d = take(rest, shape.v_dim);
  const int64_t head = take(rest, shape.heads);
  const float* context = scratch.context(rest, head);
  const Row row = row_of<Row>(kv_b, shape.value_row(head) + d);
  const double sum =
      warp_lane_sum(shape.latent, [=](int64_t i) { return widen(context[i]) * row[i]; });
  if (lane_index() == 0) o[output] = static_cast<float>(sum);
}

template <class Row>
cudaError_t attend(const Scratch& scratch, const float* q, const MatrixView& kv_b,
                   const float* cache, const int64_t* first_position, int64_t tokens, float* o,
                   cudaStream_t stream) {
  const MlaShape& shape = scratch.shape;
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.query_dim()));
  const int64_t heads = tokens * shape.heads;
  cudaError_t error = launch(absorb_queries<Row>, heads * divide_up(shape.cache_width(), kThreads),
                             kThreads, stream, scratch, q, kv_b);
  if (error == cudaSuccess) {
    const int64_t blocks =
        tokens * divide_up(shape.heads, kScoreHeads) * divide_up(scratch.positions, kWarps);
    error =
        launch(score_positions, blocks, kThreads, stream, scratch, cache, first_position, scale);
  }
  if (error == cudaSuccess) {
    error = launch(softmax_positions, heads, kSoftmaxThreads, stream, scratch, first_position);
  }
  if (error == cudaSuccess) {
    error = launch(add_contexts, heads * divide_up(shape.latent, kThreads), kThreads, stream,
                   scratch, cache, first_position);
  }
  if (error == cudaSuccess) {
    error = launch(multiply_values<Row>, divide_up(heads * shape.v_dim, kWarps), kThreads, stream,
                   scratch, kv_b, tokens, o);
  }
  return error;
}

}  // namespace

int64_t mla_scratch_bytes(const MlaShape& shape, int64_t positions) {
  return Scratch{.shape = shape, .positions = positions}.token_bytes();
}

cudaError_t mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                          const float* cache, const int64_t* first_position, int64_t first_token,
                          int64_t positions, int64_t tokens, std::byte* scratch, float* o,
                          cudaStream_t stream) {
  const Scratch lent{
      .shape = shape, .positions = positions, .first_token = first_token, .begin = scratch};
  if (kv_b.format == Format::kBf16) {
    return attend<WideBf16Row>(lent, q, kv_b, cache, first_position, tokens, o, stream);
  }
  if (kv_b.format == Format::kF32) {
    return attend<WideF32Row>(lent, q, kv_b, cache, first_position, tokens, o, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace k3::cuda
