// Where the bytes of quantized activations lie for the GPU's products, and how one code is made.
//
// A row of weights is read in chunks of 16 bytes, chunk c by lane c mod 32 of a warp. A chunk holds
// up to five *pieces* of 16 consecutive inputs:
//   int8      one piece, 16 c onwards
//   mxfp4     two, the halves of group c
//   ternary   five, 32 inputs apart: the trits on each place of half a block
// Each code is two bytes, high and low, in planes of their own, as dp4a wants them. The 32 lanes'
// pieces with the same number lie side by side, so that every read of a warp is 512 bytes in a row:
// tile (step, piece, plane) with step = c / 32, and lane c mod 32 at 16 bytes each. Inputs that do
// not exist are zeros, up to a whole step.
//
// For the ternary formats, whose decoder gives trit + 1, a plane of int32 follows the tiles: the
// sum of the codes that each chunk meets.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/matmul.h"
#include "kernels/scaled_double.h"
#include "schema/host_device.h"
#include "schema/layout.h"

namespace k3 {

inline constexpr int64_t kChunkBytes = 16;
inline constexpr int64_t kPieceInputs = 16;
inline constexpr int64_t kTileBytes = kChunkBytes * kLanes;

// Of a format that reads_codes.
struct ActivationTiles {
  Format format = Format::kInt8;
  int64_t cols = 0;

  K3_HOST_DEVICE bool has_sums() const {
    return format == Format::kTernary || format == Format::kTernary2;
  }
  K3_HOST_DEVICE int64_t pieces() const { return pieces_of(format); }
  K3_HOST_DEVICE static constexpr int pieces_of(Format format) {
    return format == Format::kInt8 ? 1 : format == Format::kMxfp4 ? 2 : kTritsPerByte;
  }
  K3_HOST_DEVICE int64_t chunks() const {
    if (format == Format::kMxfp4) return cols / kMxfp4GroupInputs;
    const int64_t block_bytes = format == Format::kInt8 ? kBlockInputs : kTernaryBlockBytes;
    return divide_up(cols, kBlockInputs) * (block_bytes / kChunkBytes);
  }
  K3_HOST_DEVICE int64_t steps() const { return divide_up(chunks(), kLanes); }

  // The first input of a piece.
  K3_HOST_DEVICE int64_t piece_input(int64_t chunk, int64_t piece) const {
    if (format == Format::kInt8) return chunk * kPieceInputs;
    if (format == Format::kMxfp4) return chunk * kMxfp4GroupInputs + piece * kPieceInputs;
    return chunk / 2 * kBlockInputs + piece * kTernaryBlockBytes + chunk % 2 * kPieceInputs;
  }
  // Of a piece's 16 bytes in plane 0 (high) or 1 (low); chunks up to 32 steps().
  K3_HOST_DEVICE int64_t piece_offset(int64_t chunk, int64_t piece, int plane) const {
    return ((chunk / kLanes * pieces() + piece) * 2 + plane) * kTileBytes +
           chunk % kLanes * kChunkBytes;
  }
  // So a lane, whose chunks are 32 apart, finds all its pieces at fixed distances.
  K3_HOST_DEVICE static constexpr int64_t step_bytes(Format format) {
    return pieces_of(format) * 2 * kTileBytes;
  }
  K3_HOST_DEVICE int64_t sums_offset() const { return steps() * pieces() * 2 * kTileBytes; }
  K3_HOST_DEVICE int64_t vector_bytes() const {
    return sums_offset() + (has_sums() ? steps() * kLanes * 4 : 0);
  }
};

// 2^exponent as a float, -126..127.
K3_HOST_DEVICE inline float float_power_of_two(int exponent) {
  return float_from_bits(static_cast<uint32_t>(exponent + 127) << 23);
}

// exact_activation_code without a double, which costs a GPU 32 or 64 times a float. 2^-exponent
// needs not be a float, so it comes as two factors. Products with powers of two are exact unless
// they end below 2^-126, and what ends there is a code of 0 either way; the first one stays above
// that whenever the second ends at a half or more.
K3_HOST_DEVICE inline int activation_code_in_float(float x, int exponent) {
  const int half = -exponent / 2;
  return static_cast<int>(
      rintf(x * float_power_of_two(half) * float_power_of_two(-exponent - half)));
}

}  // namespace k3
