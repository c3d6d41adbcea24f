// C is cut into blocks that threads take. For a block, some rows of A and a strip of B are packed
// so that the innermost loop reads both straight through, and a tile of C stays in registers over
// kDepthBlock terms. A tile starts from C's own values and goes back there, which is what keeps the
// order of terms whatever the sizes below are.
#include "kernels/float_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/parallel.h"

// Arrays of registers need a vector size known when compiling, which rules SVE out; its machines
// run the NEON code.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/float_product_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef K3_KERNELS_FLOAT_PRODUCT_SIZES_
#define K3_KERNELS_FLOAT_PRODUCT_SIZES_
namespace k3 {
namespace {

constexpr int64_t kBlockRows = 48;  // whole tiles of every instruction set
constexpr int64_t kBlockCols = 256;
constexpr int64_t kDepthBlock = 256;
constexpr int64_t kMostTileCols = 32;
constexpr int64_t kScratchFloats = kDepthBlock * (kBlockRows + kMostTileCols);

}  // namespace
}  // namespace k3
#endif  // K3_KERNELS_FLOAT_PRODUCT_SIZES_

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {  // so that calls are inlined in position-independent code, too

namespace hn = hwy::HWY_NAMESPACE;

// Sums of a tile, two vectors of B and one value of A: 15 of AVX2's 16 registers.
#if HWY_TARGET == HWY_AVX2
constexpr int64_t kTileRows = 6;
#else
constexpr int64_t kTileRows = 8;
#endif
constexpr int64_t kTileVectors = 2;
static_assert(kBlockRows % kTileRows == 0);

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr auto kVectorLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kTileCols = kTileVectors * kVectorLanes;
static_assert(kTileCols <= kMostTileCols);

// Highway's portable MulAdd rounds twice.
HWY_INLINE V fused_multiply_add(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Adds `depth` terms to a tile of C. a is [depth, kTileRows], b is [depth, kTileCols].
HWY_INLINE void add_tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                         float* HWY_RESTRICT c, int64_t c_stride) {
  const D d;
  V sums[kTileRows][kTileVectors];
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kTileVectors; ++v) {
      sums[i][v] = hn::LoadU(d, c + i * c_stride + v * kVectorLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k, a += kTileRows, b += kTileCols) {
    const V left_half = hn::LoadU(d, b);
    const V right_half = hn::LoadU(d, b + kVectorLanes);
    for (int64_t i = 0; i < kTileRows; ++i) {
      const V value = hn::Set(d, a[i]);
      sums[i][0] = fused_multiply_add(value, left_half, sums[i][0]);
      sums[i][1] = fused_multiply_add(value, right_half, sums[i][1]);
    }
  }
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kTileVectors; ++v) {
      hn::StoreU(sums[i][v], d, c + i * c_stride + v * kVectorLanes);
    }
  }
}

// A tile over the edge of C: what lies beyond is zeros that nobody keeps.
void add_edge_tile(int64_t rows, int64_t cols, int64_t depth, const float* a, const float* b,
                   float* c, int64_t c_stride) {
  float tile[kTileRows * kTileCols] = {};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) tile[i * kTileCols + j] = c[i * c_stride + j];
  }
  add_tile(depth, a, b, tile, kTileCols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) c[i * c_stride + j] = tile[i * kTileCols + j];
  }
}

// [rows, depth] of A as tiles, each [depth, kTileRows], zeros below the last row.
void pack_rows(int64_t rows, int64_t depth, FloatMatrix a, float* HWY_RESTRICT packed) {
  for (int64_t first = 0; first < rows; first += kTileRows) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      const bool there = first + i < rows;
      const float* const from = a.data + (there ? first + i : 0) * a.row_stride;
      float* const to = packed + first * depth + i;
      for (int64_t k = 0; k < depth; ++k) to[k * kTileRows] = there ? from[k * a.col_stride] : 0;
    }
  }
}

// [depth, cols] of B as [depth, kTileCols], zeros right of the last column.
void pack_cols(int64_t cols, int64_t depth, FloatMatrix b, float* HWY_RESTRICT packed) {
  const D d;
  if (cols == kTileCols && b.col_stride == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t v = 0; v < kTileVectors; ++v) {
        hn::StoreU(hn::LoadU(d, b.data + k * b.row_stride + v * kVectorLanes), d,
                   packed + k * kTileCols + v * kVectorLanes);
      }
    }
    return;
  }
  for (int64_t j = 0; j < kTileCols; ++j) {
    const bool there = j < cols;
    const float* const from = b.data + (there ? j : 0) * b.col_stride;
    for (int64_t k = 0; k < depth; ++k) {
      packed[k * kTileCols + j] = there ? from[k * b.row_stride] : 0;
    }
  }
}

// rows <= kBlockRows; `scratch` holds kScratchFloats.
void add_block_product(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                       float* c, int64_t c_stride, float* scratch) {
  float* const left = scratch;
  float* const right = scratch + kBlockRows * kDepthBlock;
  for (int64_t k = 0; k < depth; k += kDepthBlock) {
    const int64_t terms = depth - k < kDepthBlock ? depth - k : kDepthBlock;
    pack_rows(rows, terms, a.at(0, k), left);
    for (int64_t j = 0; j < cols; j += kTileCols) {
      const int64_t width = cols - j < kTileCols ? cols - j : kTileCols;
      pack_cols(width, terms, b.at(k, j), right);
      for (int64_t i = 0; i < rows; i += kTileRows) {
        const int64_t height = rows - i < kTileRows ? rows - i : kTileRows;
        float* const tile = c + i * c_stride + j;
        if (height == kTileRows && width == kTileCols) {
          add_tile(terms, left + i * terms, right, tile, c_stride);
        } else {
          add_edge_tile(height, width, terms, left + i * terms, right, tile, c_stride);
        }
      }
    }
  }
}

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(add_block_product);

void add_block(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b, float* c,
               int64_t c_stride) {
  thread_local std::vector<float> scratch(static_cast<size_t>(kScratchFloats));
  HWY_DYNAMIC_DISPATCH(add_block_product)
  (rows, cols, depth, a, b, c, c_stride, scratch.data());
}

}  // namespace
}  // namespace k3::cpu

namespace k3 {

void add_float_product(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                       float* c, int64_t c_stride) {
  const int64_t blocks_across = (cols + kBlockCols - 1) / kBlockCols;
  const int64_t blocks_down = (rows + kBlockRows - 1) / kBlockRows;
  // Sixteen multiply-adds or so make one of parallel_ranges' steps.
  const int64_t cost = std::min(rows, kBlockRows) * std::min(cols, kBlockCols) * depth / 16;
  parallel_ranges(blocks_down * blocks_across, cost, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t i = block / blocks_across * kBlockRows;
      const int64_t j = block % blocks_across * kBlockCols;
      cpu::add_block(std::min(kBlockRows, rows - i), std::min(kBlockCols, cols - j), depth,
                     a.at(i, 0), b.at(0, j), c + i * c_stride + j, c_stride);
    }
  });
}

}  // namespace k3
#endif  // HWY_ONCE
