// Matrices and activations made from a seed and a position alone, with the codes, scales and values
// that break careless kernels: any program can make any part of them, in any order, on any machine.
// So a vector of a large shape needs to store no more than its seed and the hash of its outputs.
//
// Everything comes from integers by exact steps or one IEEE rounding: no library's distribution or
// logarithm is involved.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "schema/format.h"
#include "schema/formats/bf16.h"
#include "schema/formats/mxfp4.h"
#include "schema/formats/ternary.h"
#include "schema/layout.h"
#include "schema/matrix_view.h"

namespace k3 {

// Sixty-four random bits for a position: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)
// over a counter in steps of the golden ratio.
inline uint64_t counted_bits(uint64_t seed, int64_t at) {
  uint64_t z = seed * 0xd1342543de82ef95U + static_cast<uint64_t>(at + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// Near a normal distribution of deviation 0.58: the sum of four uniform numbers, in steps of 2^-16.
inline float counted_normal(uint64_t seed, int64_t at) {
  const uint64_t bits = counted_bits(seed, at);
  int64_t sum = -2 * 65535;
  for (int part = 0; part < 4; ++part) sum += static_cast<int64_t>((bits >> (16 * part)) & 0xffff);
  return static_cast<float>(sum) * 0x1p-16F;
}

// Normal values over twelve binades.
inline float counted_weight(uint64_t seed, int64_t at) {
  const auto binade = static_cast<int>(counted_bits(~seed, at) % 12);
  return std::ldexp(counted_normal(seed, at), -binade);
}

// [tokens, cols]. Token t is of kind t mod 7: normal; with one outlier; all at +-32639 steps; codes
// whose low byte is 0x80; zero, of both signs; subnormal; over all of float's range.
inline void fill_counted_activations(uint64_t seed, int64_t tokens, int64_t cols, float* x) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t at = t * cols + c;
      const float value = counted_normal(seed, at);
      const uint64_t bits = counted_bits(~seed, at);
      const float sign = bits % 2 == 0 ? 1.0F : -1.0F;
      const auto pick = static_cast<int>(bits >> 32);
      switch (t % 7) {
        case 0:
          x[at] = value;
          break;
        case 1:
          x[at] = c == cols / 2 ? 100.0F : value;
          break;
        case 2:
          x[at] = sign * 32639.0F * 0x1p-20F;
          break;
        case 3:
          x[at] = c == 0 ? 32639.0F
                         : sign * static_cast<float>(256 * ((pick & 0x7fffffff) % 127) + 128);
          break;
        case 4:
          x[at] = sign * 0.0F;
          break;
        case 5:
          x[at] = std::ldexp(value, -140);
          break;
        default:
          x[at] = std::ldexp(value, (pick & 0x7fffffff) % 240 - 149);
      }
    }
  }
}

// Codes, then scales, of groups that follow each other, with exponents that span 16 from `least`.
// One group in eight is all zeros of both signs, with any scale up to `least`.
inline void fill_counted_mxfp4(uint64_t seed, int64_t groups, int least, std::byte* codes,
                               std::byte* scales) {
  constexpr int64_t kBytes = kMxfp4GroupInputs / 2;
  for (int64_t g = 0; g < groups; ++g) {
    const uint64_t bits = counted_bits(~seed, g);
    const bool zero = g != 0 && bits % 8 == 0;
    for (int64_t i = 0; i < kBytes; ++i) {
      const uint64_t byte = counted_bits(seed, g * 2 + i / 8) >> (i % 8 * 8);
      codes[g * kBytes + i] = static_cast<std::byte>(zero ? byte & 0x88U : byte & 0xffU);
    }
    const auto pick = static_cast<int>((bits >> 32) & 0xffff);
    scales[g] =
        static_cast<std::byte>(zero ? pick % (least + 1) : least + (g == 0 ? 0 : pick % 17));
    if (g == 0) codes[0] = std::byte{0x21};  // so that the matrix really has this least exponent
  }
}

// Bytes of a counted matrix: its extent, or for mxfp4 its codes and behind them its scales.
inline int64_t counted_matrix_bytes(Format format, int64_t rows, int64_t cols) {
  if (format == Format::kMxfp4) return rows * (cols / 2 + cols / kMxfp4GroupInputs);
  if (lies_in_blocks160(format)) return Blocks160{format, rows, cols}.extent_bytes();
  return rows * packed_row_bytes(format, cols);
}

inline constexpr int kCountedLeastExponent = 110;

// The view of such bytes.
inline MatrixView view_counted_matrix(Format format, int64_t rows, int64_t cols,
                                      const std::byte* bytes) {
  if (format != Format::kMxfp4) return view_matrix(format, rows, cols, bytes);
  MatrixView view{.format = format, .rows = rows, .cols = cols, .codes = bytes};
  view.row_stride_bytes = cols / 2;
  view.scales = reinterpret_cast<const uint8_t*>(bytes + rows * view.row_stride_bytes);
  view.scales_per_row = cols / kMxfp4GroupInputs;
  view.least_exponent = kCountedLeastExponent;
  return view;
}

// Row scales: normal, but for the rows 1 (subnormal), 2 (2^100) and 3 of every 16; row 3 is zero in
// all its codes too. The padding of a row holds codes like any other.
inline void fill_counted_blocks160(uint64_t seed, const Blocks160& place, std::byte* bytes) {
  for (int64_t row = 0; row < place.rows; ++row) {
    const bool zero = row % 16 == 3;
    for (int64_t plane = 0; plane < place.planes(); ++plane) {
      std::byte* codes = bytes + place.code_offset(row, 0, plane);
      for (int64_t i = 0; i < place.row_stride_bytes(); ++i) {
        const int64_t at = (plane * place.rows + row) * place.row_stride_bytes() + i;
        const auto pick = static_cast<int>(counted_bits(seed, at) >> 40);
        codes[i] = place.format == Format::kInt8
                       ? static_cast<std::byte>(zero ? 0 : pick % 255 - 127)
                       : std::byte{zero ? kFiveZeroTrits : encode_five_trits(pick % 243)};
      }
    }
    for (int64_t block = 0; block < place.blocks_per_row(); ++block) {
      bytes[place.multiplier_offset(row, block * kBlockInputs)] =
          static_cast<std::byte>(counted_bits(~seed, row * place.blocks_per_row() + block) >> 56);
    }
    float scale = std::fabs(counted_weight(seed + 1, row));
    if (row % 16 == 1) scale = 0x1p-149F * static_cast<float>(1 + row);
    if (row % 16 == 2) scale = 0x1p100F;
    std::memcpy(bytes + place.row_scale_offset(row), &scale, sizeof scale);
  }
}

// Fills counted_matrix_bytes(format, rows, cols) zeroed bytes.
inline void fill_counted_matrix(uint64_t seed, Format format, int64_t rows, int64_t cols,
                                std::byte* bytes) {
  if (lies_in_blocks160(format)) {
    fill_counted_blocks160(seed, Blocks160{format, rows, cols}, bytes);
    return;
  }
  if (format == Format::kMxfp4) {
    fill_counted_mxfp4(seed, rows * cols / kMxfp4GroupInputs, kCountedLeastExponent, bytes,
                       bytes + rows * cols / 2);
    return;
  }
  for (int64_t i = 0; i < rows * cols; ++i) {
    const float weight = counted_weight(seed, i);
    const uint16_t bf16 = encode_bf16(weight);
    if (format == Format::kF32) std::memcpy(bytes + 4 * i, &weight, 4);
    if (format == Format::kBf16) std::memcpy(bytes + 2 * i, &bf16, 2);
  }
}

// FNV-1a over the bits of floats, four bytes a step from the least significant on; any NaN counts
// as 0x7fc00000.
inline uint64_t hash_outputs(const float* y, int64_t count) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0x7fc00000U;
    if (!std::isnan(y[i])) std::memcpy(&bits, y + i, sizeof bits);
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ ((bits >> (8 * byte)) & 0xffU)) * 0x100000001b3U;
    }
  }
  return hash;
}

}  // namespace k3
