// The meaning of a product: float activations, weights decoded to double, sums in index order.
//
// Index order makes one output a chain of dependent additions, so speed comes from many outputs at
// once: 16 rows are decoded side by side into a tile that stays in the first-level cache, and every
// token passes over it. A row is decoded once for the whole batch.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "kernels/matmul.h"

namespace k3::reference {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileCols =
    kBlockInputs;  // one block of blocks160, five groups of mxfp4; 20 KiB a tile

// tile[r][c] = W[row_begin + r, col_begin + c].
using Tile = std::array<std::array<double, kTileCols>, kTileRows>;

// out[i] = weight(i) for i in [0, count).
template <class Weight>
void decode(int64_t count, double* out, const Weight& weight) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<double>(weight(i));
}

// A group of 32: decode_mxfp4's values, with what the group shares taken out of the loop.
void decode_mxfp4_group(const uint8_t* codes, uint8_t scale, double* out) {
  static const std::array<double, 16> kDoubled = [] {
    std::array<double, 16> doubled;
    for (unsigned code = 0; code < 16; ++code) doubled[code] = decode_mxfp4_doubled(code);
    return doubled;
  }();
  const double half_scale = 0.5 * decode_e8m0(scale);
  for (int64_t i = 0; i < kMxfp4GroupInputs; i += 2) {
    const unsigned pair = codes[i / 2];
    out[i] = half_scale * kDoubled[pair & 15U];
    out[i + 1] = half_scale * kDoubled[pair >> 4];
  }
}

// out[i] = W[row, col_begin + i] for `cols` weights from the start of a tile.
void decode_row(const MatrixView& weights, int64_t row, int64_t col_begin, int64_t cols,
                double* out) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  const uint8_t* scales = weights.scales + row * weights.scales_per_row;
  switch (weights.format) {
    case Format::kF32: {
      const auto* w = reinterpret_cast<const float*>(codes) + col_begin;
      decode(cols, out, [w](int64_t i) { return w[i]; });
      break;
    }
    case Format::kBf16: {
      const auto* w = reinterpret_cast<const uint16_t*>(codes) + col_begin;
      decode(cols, out, [w](int64_t i) { return decode_bf16(w[i]); });
      break;
    }
    case Format::kInt8: {
      const auto* w = reinterpret_cast<const int8_t*>(codes) + col_begin;
      const uint8_t multiplier = scales[col_begin / kBlockInputs];
      const float row_scale = weights.row_scales[row];
      decode(cols, out, [=](int64_t i) { return decode_int8(w[i], multiplier, row_scale); });
      break;
    }
    case Format::kTernary:
    case Format::kTernary2: {
      const uint8_t multiplier = scales[col_begin / kBlockInputs];
      const float row_scale = weights.row_scales[row];
      decode(cols, out, [&](int64_t i) {
        return decode_ternary(ternary_code_at(weights, row, col_begin + i), multiplier, row_scale);
      });
      break;
    }
    case Format::kMxfp4: {
      const auto* w = reinterpret_cast<const uint8_t*>(codes) + col_begin / 2;
      for (int64_t i = 0; i < cols; i += kMxfp4GroupInputs) {
        decode_mxfp4_group(w + i / 2, scales[(col_begin + i) / kMxfp4GroupInputs], out + i);
      }
      break;
    }
  }
}

// sums[r] += tile[r][c] * x[c], c ascending.
void add_tile(const Tile& tile, const float* x, int64_t cols, double* sums) {
  std::array<double, kTileRows> rows;
  std::copy_n(sums, kTileRows, rows.begin());
  for (size_t c = 0; c < static_cast<size_t>(cols); ++c) {
    const auto value = static_cast<double>(x[c]);
    for (size_t r = 0; r < kTileRows; ++r) rows[r] += tile[r][c] * value;
  }
  std::copy_n(rows.begin(), kTileRows, sums);
}

}  // namespace

void add_products(const MatrixView& weights, const float* x, int64_t tokens, double* sums) {
  Tile tile{};
  std::vector<double> tile_sums(static_cast<size_t>(tokens * kTileRows));
  for (int64_t row_begin = 0; row_begin < weights.rows; row_begin += kTileRows) {
    const int64_t rows = std::min(kTileRows, weights.rows - row_begin);
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(sums + t * weights.rows + row_begin, rows, tile_sums.data() + t * kTileRows);
    }
    for (int64_t col_begin = 0; col_begin < weights.cols; col_begin += kTileCols) {
      const int64_t cols = std::min(kTileCols, weights.cols - col_begin);
      for (int64_t r = 0; r < rows; ++r) {
        decode_row(weights, row_begin + r, col_begin, cols, tile[static_cast<size_t>(r)].data());
      }
      for (int64_t t = 0; t < tokens; ++t) {
        add_tile(tile, x + t * weights.cols + col_begin, cols, tile_sums.data() + t * kTileRows);
      }
    }
    for (int64_t t = 0; t < tokens; ++t) {
      std::copy_n(tile_sums.data() + t * kTileRows, rows, sums + t * weights.rows + row_begin);
    }
  }
}

void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  std::vector<double> sums(static_cast<size_t>(tokens * weights.rows));
  add_products(weights, x, tokens, sums.data());
  std::transform(sums.begin(), sums.end(), y, [](double sum) { return static_cast<float>(sum); });
}

}  // namespace k3::reference
