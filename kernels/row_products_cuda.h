// Sums of rows of integer weights on a GPU: lane l of a warp takes the chunks c = l mod 32 of 16
// bytes of each row (activation_tiles.h), decodes them in registers and adds products with dp4a.
//
// A warp works on several rows, which then share each read of the activations, and for a batch on
// several vectors, which share the decoding. Sums are integers, so none of this changes a bit.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/activation_tiles.h"
#include "kernels/byte_products.h"
#include "kernels/matmul.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {

// Sixteen bytes of a row and their scale: what one lane reads at once.
template <Format kFormat>
struct Chunk {
  uint4 codes;
  uint4 second;  // ternary2 only
  int scale;     // the multiplier, or the shift
};

// Weights are read once, so they should not push activations out of the caches.
__device__ inline uint4 read_once(const std::byte* at) {
  return __ldcs(reinterpret_cast<const uint4*>(at));
}
__device__ inline uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// Where one row lies.
template <Format kFormat>
class RowReader {
 public:
  RowReader() = default;
  __device__ RowReader(const MatrixView& weights, int64_t row)
      : codes_(weights.codes + row * weights.row_stride_bytes),
        scales_(weights.scales + row * weights.scales_per_row),
        least_exponent_(weights.least_exponent) {
    if constexpr (kFormat == Format::kTernary2) {
      second_ = weights.second_codes + row * weights.row_stride_bytes;
    }
  }

  __device__ Chunk<kFormat> read(int chunk) const {
    constexpr int kBlockBytes = kFormat == Format::kInt8 ? kBlockInputs : kTernaryBlockBytes;
    constexpr unsigned kChunksPerScale =
        kFormat == Format::kMxfp4 ? 1u : kBlockBytes / static_cast<unsigned>(kChunkBytes);
    constexpr int kBytes = static_cast<int>(kChunkBytes);
    Chunk<kFormat> chunk_read;
    chunk_read.codes = read_once(codes_ + chunk * kBytes);
    if constexpr (kFormat == Format::kTernary2) {
      chunk_read.second = read_once(second_ + chunk * kBytes);
    }
    const uint8_t scale = scales_[static_cast<unsigned>(chunk) / kChunksPerScale];
    chunk_read.scale = kFormat == Format::kMxfp4 ? mxfp4_shift(scale, least_exponent_) : int{scale};
    return chunk_read;
  }

  // The same row of another matrix that lies `bytes` behind this one.
  __device__ RowReader moved(int64_t bytes) const {
    RowReader reader = *this;
    reader.codes_ += bytes;
    reader.scales_ += bytes;
    return reader;
  }

 private:
  const std::byte* codes_ = nullptr;
  const std::byte* second_ = nullptr;
  const uint8_t* scales_ = nullptr;
  int least_exponent_ = 0;
};

// One lane's activations of one vector, from its first chunk on.
struct LaneTiles {
  const std::byte* pieces = nullptr;
  const int32_t* sums = nullptr;

  LaneTiles() = default;
  // `tiles` as ActivationTiles says.
  __device__ LaneTiles(const ActivationTiles& place, const std::byte* tiles, int first_chunk)
      : pieces(tiles + place.piece_offset(first_chunk, 0, 0)),
        sums(reinterpret_cast<const int32_t*>(tiles + place.sums_offset()) + first_chunk) {}
};

// The codes of a chunk, piece after piece, as bytes for dp4a.
template <Format kFormat>
class ChunkDecoder;

template <>
class ChunkDecoder<Format::kInt8> {
 public:
  ChunkDecoder() = default;
  __device__ explicit ChunkDecoder(const Chunk<Format::kInt8>& chunk) : codes_(chunk.codes) {}
  __device__ uint4 next_piece() { return codes_; }

 private:
  uint4 codes_;
};

template <>
class ChunkDecoder<Format::kMxfp4> {
 public:
  ChunkDecoder() = default;
  __device__ explicit ChunkDecoder(const Chunk<Format::kMxfp4>& chunk) : codes_(chunk.codes) {}
  __device__ uint4 next_piece() {
    const DoubledBytes first = mxfp4_doubled_bytes(codes_.x);
    const DoubledBytes second = mxfp4_doubled_bytes(codes_.y);
    codes_.x = codes_.z;
    codes_.y = codes_.w;
    return {first.first, first.second, second.first, second.second};
  }

 private:
  uint4 codes_;
};

template <>
class ChunkDecoder<Format::kTernary> {
 public:
  ChunkDecoder() = default;
  __device__ explicit ChunkDecoder(const Chunk<Format::kTernary>& chunk)
      : x_(chunk.codes.x), y_(chunk.codes.y), z_(chunk.codes.z), w_(chunk.codes.w) {}
  __device__ uint4 next_piece() { return {x_.next(), y_.next(), z_.next(), w_.next()}; }

 private:
  TritWord x_, y_, z_, w_;
};

// 3 first + second, 0..8 in each byte.
template <>
class ChunkDecoder<Format::kTernary2> {
 public:
  ChunkDecoder() = default;
  __device__ explicit ChunkDecoder(const Chunk<Format::kTernary2>& chunk)
      : first_({chunk.codes, {}, 0}), second_({chunk.second, {}, 0}) {}
  __device__ uint4 next_piece() {
    const uint4 a = first_.next_piece();
    const uint4 b = second_.next_piece();
    return {3 * a.x + b.x, 3 * a.y + b.y, 3 * a.z + b.z, 3 * a.w + b.w};
  }

 private:
  ChunkDecoder<Format::kTernary> first_;
  ChunkDecoder<Format::kTernary> second_;
};

// The decoder's bytes are codes plus this.
template <Format kFormat>
inline constexpr int kCodeOffset = kFormat == Format::kTernary    ? 1
                                   : kFormat == Format::kTernary2 ? 4
                                                                  : 0;

// One lane's share of the sums of kRows rows with kVectors vectors.
template <Format kFormat, int kRows, int kVectors>
class LaneSums {
 public:
  // The lane's chunk number `step`, 32 apart.
  __device__ void add(const Chunk<kFormat> (&chunks)[kRows], const LaneTiles (&vectors)[kVectors],
                      int step) {
    ChunkDecoder<kFormat> decoders[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) decoders[r] = ChunkDecoder<kFormat>(chunks[r]);
    int32_t high[kRows][kVectors] = {};
    int32_t low[kRows][kVectors] = {};
    const int offset = step * static_cast<int>(ActivationTiles::step_bytes(kFormat));
#pragma unroll
    for (int piece = 0; piece < ActivationTiles::pieces_of(kFormat); ++piece) {
      uint4 codes[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) codes[r] = decoders[r].next_piece();
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* at = vectors[v].pieces + offset + piece * 2 * kTileBytes;
        const uint4 high_bytes = *reinterpret_cast<const uint4*>(at);
        const uint4 low_bytes = *reinterpret_cast<const uint4*>(at + kTileBytes);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          high[r][v] = add_piece_products(codes[r], high_bytes, high[r][v]);
          low[r][v] = add_piece_products(codes[r], low_bytes, low[r][v]);
        }
      }
    }
    add_scaled(chunks, vectors, step, high, low);
  }

  __device__ int64_t sum(int row, int vector) const {
    return static_cast<int64_t>(sums_[row][vector]);
  }

 private:
  __device__ static int32_t add_piece_products(const uint4& codes, const uint4& bytes,
                                               int32_t sum) {
    sum = add_byte_products(codes.x, bytes.x, sum);
    sum = add_byte_products(codes.y, bytes.y, sum);
    sum = add_byte_products(codes.z, bytes.z, sum);
    return add_byte_products(codes.w, bytes.w, sum);
  }

  __device__ void add_scaled(const Chunk<kFormat> (&chunks)[kRows],
                             const LaneTiles (&vectors)[kVectors], int step,
                             const int32_t (&high)[kRows][kVectors],
                             const int32_t (&low)[kRows][kVectors]) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      int32_t excess = 0;
      if constexpr (kCodeOffset<kFormat> != 0) {
        excess = kCodeOffset<kFormat> * vectors[v].sums[step * kLanes];
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        // At most 80 codes of 8, or 16 of 128, times 32639: far from 2^31.
        const int64_t sum = 256 * high[r][v] + low[r][v] - excess;
        // Unsigned: what no pack of k3c holds may wrap, as it does on the host.
        sums_[r][v] += kFormat == Format::kMxfp4 ? static_cast<uint64_t>(sum) << chunks[r].scale
                                                 : static_cast<uint64_t>(sum * chunks[r].scale);
      }
    }
  }

  uint64_t sums_[kRows][kVectors] = {};
};

}  // namespace k3::cuda
