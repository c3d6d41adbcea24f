// The exact matrix products on a GPU.
//
// Integer formats go through row_products_cuda.h: a warp takes two rows at a time, one where the
// matrix is too short to fill the card that way, and up to four vectors of a batch.
//
// Float weights have one order of addition, lane j mod 32, which a warp that reads a row 512 bytes
// at a time does not have: its lanes would hold neighbours. So a warp reads several rows side by
// side instead, 64 bytes of each if they are bf16: four lanes hold the 32 lanes of a row, eight
// each, and go down the row together. Every sector of memory is still read whole and once. Weights
// become doubles by integer instructions (scaled_double.h), since the double pipe of most cards has
// nothing to spare. Rows that are not a multiple of 16 bytes, and those with an infinite or NaN
// weight, are summed once more the plain way, a warp a row.
#include "kernels/operations_cuda.h"
#include "kernels/row_products_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kWarps = 4;  // of a block
constexpr int kThreads = kWarps * kLanes;
// Below this, one row a warp: a large card runs about as many warps.
constexpr int64_t kRowsForTwo = 4096;

template <Format kFormat, int kRows, int kVectors>
__global__ void __launch_bounds__(kThreads)
    multiply_integers(MatrixView weights, PreparedVectors x, int64_t tokens, float* y) {
  // Tiles of vectors go fastest, so that those that share weights run together.
  const int64_t vector_tiles = divide_up(tokens, kVectors);
  const int64_t first_row = (blockIdx.x / vector_tiles * kWarps + warp_index()) * kRows;
  const int64_t first_vector = blockIdx.x % vector_tiles * kVectors;
  if (first_row >= weights.rows) return;
  const ActivationTiles place{.format = kFormat, .cols = weights.cols};
  const int lane = lane_index();
  RowReader<kFormat> rows[kRows];  // beyond the last row, the last once more
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = {weights, first_row + r < weights.rows ? first_row + r : weights.rows - 1};
  }
  LaneTiles vectors[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t vector = first_vector + v < tokens ? first_vector + v : tokens - 1;
    vectors[v] = {place, x.tiles + vector * x.stride_bytes, lane};
  }

  LaneSums<kFormat, kRows, kVectors> sums;
  const int chunks = static_cast<int>(place.chunks());
  Chunk<kFormat> next[kRows] = {};
  if (lane < chunks) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) next[r] = rows[r].read(lane);
  }
  // Twice where there are registers for it, so that `next` becomes `now` without moving.
  [[maybe_unused]] constexpr int kUnrolled = kVectors == 1 && kFormat != Format::kTernary2 ? 2 : 1;
#pragma unroll kUnrolled
  for (int step = 0; lane + step * kLanes < chunks; ++step) {
    Chunk<kFormat> now[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) now[r] = next[r];
    const int following = lane + (step + 1) * kLanes;
    if (following < chunks) {  // on its way while this one is added
#pragma unroll
      for (int r = 0; r < kRows; ++r) next[r] = rows[r].read(following);
    }
    sums.add(now, vectors, step);
  }
  // Lane i makes output i, so that its few operations in double run for all of them at once.
  int64_t own = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t sum = from_first_lane(add_lanes(sums.sum(r, v)));
      own = lane_index() == v * kRows + r ? sum : own;
    }
  }
  const int64_t row = first_row + lane_index() % kRows;
  const int64_t vector = first_vector + lane_index() / kRows;
  if (lane_index() < kRows * kVectors && row < weights.rows && vector < tokens) {
    y[vector * weights.rows + row] =
        exact_output(weights, row, static_cast<double>(own), x.steps[vector]);
  }
}

// A weight of bf16 or f32 as one of a 32-bit word of its row.
template <class Weight>
struct FloatWeights;
template <>
struct FloatWeights<uint16_t> {
  static constexpr int kPerWord = 2;
  __device__ static double scaled(uint32_t word, int i) {
    return scaled_short_weight(i == 0 ? word << 16 : word);
  }
  // Not 0 in the top bits of either half if that half is infinite or NaN.
  __device__ static uint32_t not_finite(uint32_t word) {
    return ((word & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
  }
  __device__ static double plain(const std::byte* row, int64_t c) {
    return widen(decode_bf16(reinterpret_cast<const uint16_t*>(row)[c]));
  }
};
template <>
struct FloatWeights<float> {
  static constexpr int kPerWord = 1;
  __device__ static double scaled(uint32_t word, int) { return scaled_weight(word); }
  __device__ static uint32_t not_finite(uint32_t word) {
    return ((word & 0x7f800000u) + 0x00800000u) & 0x80000000u;
  }
  __device__ static double plain(const std::byte* row, int64_t c) {
    return widen(reinterpret_cast<const float*>(row)[c]);
  }
};

// One output by a whole warp.
template <class Weight>
__device__ void multiply_row_plainly(const MatrixView& weights, int64_t row, const float* x,
                                     float* y) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  const double sum = warp_lane_sum(weights.cols, [codes, x](int64_t c) {
    return FloatWeights<Weight>::plain(codes, c) * widen(x[c]);
  });
  if (lane_index() == 0) *y = static_cast<float>(sum);
}

template <class Weight>
__global__ void __launch_bounds__(kThreads)
    multiply_plainly(MatrixView weights, const float* x, int64_t tokens, float* y) {
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (output >= tokens * weights.rows) return;
  const int64_t token = output / weights.rows;
  multiply_row_plainly<Weight>(weights, output % weights.rows, x + token * weights.cols,
                               y + output);
}

// The 32 lanes of the lane order, kEach of them in each of a row's threads: the strides that are
// between threads, then those inside the first. Complete in values[0] of the row's first thread.
template <int kEach>
__device__ void add_row_lanes(double (&values)[kEach]) {
#pragma unroll
  for (int stride = kLanes / 2; stride >= kEach; stride /= 2) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      values[e] += __shfl_down_sync(kAllLanes, values[e], static_cast<unsigned>(stride / kEach));
    }
  }
#pragma unroll
  for (int stride = kEach / 2; stride > 0; stride /= 2) {
#pragma unroll
    for (int e = 0; e < stride; ++e) values[e] += values[e + stride];
  }
}

template <class Weight, int kVectors>
__global__ void __launch_bounds__(kThreads)
    multiply_floats(MatrixView weights, PreparedVectors x, int64_t tokens, float* y) {
  using Floats = FloatWeights<Weight>;
  constexpr int kEach = static_cast<int>(kChunkBytes / sizeof(Weight));  // weights of one read
  constexpr int kRowThreads = kLanes / kEach;
  constexpr int kRows = kLanes / kRowThreads;  // of a warp
  const int64_t vector_tiles = divide_up(tokens, kVectors);
  const int64_t first_row = (blockIdx.x / vector_tiles * kWarps + warp_index()) * kRows;
  const int64_t first_vector = blockIdx.x % vector_tiles * kVectors;
  if (first_row >= weights.rows) return;
  const int64_t own_row = first_row + lane_index() / kRowThreads;
  const int64_t row = own_row < weights.rows ? own_row : weights.rows - 1;
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  const double* vectors[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const int64_t vector = first_vector + v < tokens ? first_vector + v : tokens - 1;
    vectors[v] = x.scaled + vector * weights.cols;
  }

  double sums[kVectors][kEach] = {};
  uint32_t not_finite = 0;
#pragma unroll 4
  for (int c = lane_index() % kRowThreads * kEach; c < static_cast<int>(weights.cols);
       c += kLanes) {
    const uint4 words = read_once(codes + c * static_cast<int>(sizeof(Weight)));
#pragma unroll
    for (int e = 0; e < kEach; e += 2) {
      double pair[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t word = word_of(words, (e + j) / Floats::kPerWord);
        if ((e + j) % Floats::kPerWord == 0) not_finite |= Floats::not_finite(word);
        pair[j] = Floats::scaled(word, (e + j) % Floats::kPerWord);
      }
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const double2 x_pair = *reinterpret_cast<const double2*>(vectors[v] + c + e);
        sums[v][e] = std::fma(pair[0], x_pair.x, sums[v][e]);
        sums[v][e + 1] = std::fma(pair[1], x_pair.y, sums[v][e + 1]);
      }
    }
  }
  const bool plain = __any_sync(kAllLanes, not_finite != 0 ? 1 : 0) != 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t vector = first_vector + v;
    add_row_lanes(sums[v]);
    if (lane_index() % kRowThreads == 0 && vector < tokens && own_row < weights.rows && !plain) {
      y[vector * weights.rows + row] = static_cast<float>(sums[v][0]);
    }
  }
  if (!plain) return;
  for (int64_t r = first_row; r < first_row + kRows && r < weights.rows; ++r) {
    for (int64_t v = first_vector; v < first_vector + kVectors && v < tokens; ++v) {
      multiply_row_plainly<Weight>(weights, r, x.values + v * weights.cols,
                                   y + v * weights.rows + r);
    }
  }
}

template <Format kFormat, int kRows, int kVectors>
cudaError_t launch_integers(const MatrixView& weights, const PreparedVectors& x, int64_t tokens,
                            float* y, cudaStream_t stream) {
  const int64_t blocks = divide_up(weights.rows, kWarps * kRows) * divide_up(tokens, kVectors);
  return launch(multiply_integers<kFormat, kRows, kVectors>, blocks, kThreads, stream, weights, x,
                tokens, y);
}

// The registers of two rows of ternary2 would leave room for too few warps.
template <Format kFormat>
cudaError_t multiply_batch(const MatrixView& weights, const PreparedVectors& x, int64_t tokens,
                           float* y, cudaStream_t stream) {
  constexpr int kRows = kFormat == Format::kTernary2 ? 1 : 2;
  if (tokens > 1) return launch_integers<kFormat, kRows, 4>(weights, x, tokens, y, stream);
  if (weights.rows < kRowsForTwo) {
    return launch_integers<kFormat, 1, 1>(weights, x, tokens, y, stream);
  }
  return launch_integers<kFormat, kRows, 1>(weights, x, tokens, y, stream);
}

template <class Weight, int kVectors>
cudaError_t launch_floats(const MatrixView& weights, const PreparedVectors& x, int64_t tokens,
                          float* y, cudaStream_t stream) {
  constexpr int64_t kRows = kChunkBytes / static_cast<int64_t>(sizeof(Weight));
  const int64_t blocks = divide_up(weights.rows, kWarps * kRows) * divide_up(tokens, kVectors);
  return launch(multiply_floats<Weight, kVectors>, blocks, kThreads, stream, weights, x, tokens, y);
}

template <class Weight>
cudaError_t multiply_float_batch(const MatrixView& weights, const PreparedVectors& x,
                                 int64_t tokens, float* y, cudaStream_t stream) {
  if (weights.row_stride_bytes % kChunkBytes != 0) {
    return launch(multiply_plainly<Weight>, divide_up(tokens * weights.rows, kWarps), kThreads,
                  stream, weights, x.values, tokens, y);
  }
  return tokens > 1 ? launch_floats<Weight, 2>(weights, x, tokens, y, stream)
                    : launch_floats<Weight, 1>(weights, x, tokens, y, stream);
}

}  // namespace

cudaError_t matmul(const MatrixView& weights, const PreparedVectors& x, int64_t tokens, float* y,
                   cudaStream_t stream) {
  switch (weights.format) {
    case Format::kF32:
      return multiply_float_batch<float>(weights, x, tokens, y, stream);
    case Format::kBf16:
      return multiply_float_batch<uint16_t>(weights, x, tokens, y, stream);
    case Format::kInt8:
      return multiply_batch<Format::kInt8>(weights, x, tokens, y, stream);
    case Format::kMxfp4:
      return multiply_batch<Format::kMxfp4>(weights, x, tokens, y, stream);
    case Format::kTernary:
      return multiply_batch<Format::kTernary>(weights, x, tokens, y, stream);
    case Format::kTernary2:
      return multiply_batch<Format::kTernary2>(weights, x, tokens, y, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace k3::cuda
