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
constexpr int64_t kTileCols = 256;  // a multiple of an mxfp4 group; 32 KiB a tile

// tile[c, r] = W[row_begin + r, col_begin + c].
using Tile = std::array<double, kTileCols * kTileRows>;

// Decodes `cols` weights of one row into every kTileRows-th entry of `out`.
void decode_row(const MatrixView& weights, int64_t row, int64_t col_begin, int64_t cols,
                double* out) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  switch (weights.format) {
    case Format::kF32: {
      const auto* w = reinterpret_cast<const float*>(codes) + col_begin;
      for (int64_t c = 0; c < cols; ++c) out[c * kTileRows] = static_cast<double>(w[c]);
      break;
    }
    case Format::kBf16: {
      const auto* w = reinterpret_cast<const uint16_t*>(codes) + col_begin;
      for (int64_t c = 0; c < cols; ++c) {
        out[c * kTileRows] = static_cast<double>(decode_bf16(w[c]));
      }
      break;
    }
    case Format::kInt8: {
      const auto* w = reinterpret_cast<const int8_t*>(codes) + col_begin;
      const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
      for (int64_t c = 0; c < cols; ++c) {
        out[c * kTileRows] =
            decode_int8(w[c], multipliers[(col_begin + c) / kBlockInputs], weights.row_scales[row]);
      }
      break;
    }
    case Format::kMxfp4: {
      const auto* w = reinterpret_cast<const uint8_t*>(codes);
      const uint8_t* scales = weights.scales + row * weights.scales_per_row;
      for (int64_t c = 0; c < cols; c += kMxfp4GroupInputs) {
        const double half_scale = 0.5 * decode_e8m0(scales[(col_begin + c) / kMxfp4GroupInputs]);
        for (int64_t i = c; i < c + kMxfp4GroupInputs; ++i) {
          out[i * kTileRows] = half_scale * decode_mxfp4_doubled(mxfp4_code_at(w, col_begin + i));
        }
      }
      break;
    }
  }
}

// sums[r] += tile[c, r] * x[c], c ascending.
void add_tile(const Tile& tile, const float* x, int64_t cols, double* sums) {
  std::array<double, kTileRows> rows;
  std::copy_n(sums, kTileRows, rows.begin());
  for (int64_t c = 0; c < cols; ++c) {
    const auto value = static_cast<double>(x[c]);
    const double* w = tile.data() + c * kTileRows;
    for (size_t r = 0; r < kTileRows; ++r) rows[r] += w[r] * value;
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
        decode_row(weights, row_begin + r, col_begin, cols, tile.data() + r);
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
