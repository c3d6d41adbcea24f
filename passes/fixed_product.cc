// The usual blocking of a matrix product: a block of A and a strip of B are packed so that the
// innermost loop reads both straight through, and a tile of C stays in registers over a block of k.
// Nothing is summed on the side: a tile starts from C's values and goes back there, which is what
// makes the order of terms that of the header, whatever the block sizes are.
//
// The tile is as large as the registers of an instruction set allow. Only instruction sets with a
// fused multiply-add are worth a copy; the portable one calls std::fma and gives the same bits.
#include "passes/fixed_product.h"

#include <tbb/blocked_range2d.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "schema/error.h"

// Arrays of registers need a vector size known when compiling, which rules SVE out; its machines
// run the NEON code.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "passes/fixed_product.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::HWY_NAMESPACE {
namespace {  // so that calls are inlined in position-independent code, too

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
constexpr int64_t kTileRows = 4;
constexpr int64_t kTileVectors = 4;
#elif HWY_TARGET == HWY_AVX2
constexpr int64_t kTileRows = 6;  // 12 sums, 2 of B and 1 of A in 16 registers
constexpr int64_t kTileVectors = 2;
#else
constexpr int64_t kTileRows = 8;  // 24 sums, 3 of B and 1 of A in 32 registers
constexpr int64_t kTileVectors = 3;
#endif

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
constexpr int64_t kTileCols = kTileVectors * kLanes;
constexpr int64_t kTile = kTileRows * kTileCols;

constexpr int64_t kDepthBlock = 256;           // a strip of B is 48 KB at most
constexpr int64_t kRowBlock = 32 * kTileRows;  // and a block of A 256 KB, for which L2 has room

// Terms of a list meet a row of B of this many columns in registers, a group of 160 or a half or
// a quarter of it.
constexpr int64_t kListVectors = kLanes < 4 ? 16 : 10;
constexpr int64_t kListCols = kListVectors * kLanes;
constexpr int64_t kLargestTile = int64_t{8} * 3 * 16;
static_assert(kTile <= kLargestTile);

HWY_INLINE V fused_multiply_add(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

// A tile of C over `depth` terms. Packed: a is [depth, kTileRows], b is [depth, kTileCols].
HWY_INLINE void add_tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                         float* HWY_RESTRICT c, int64_t c_stride) {
  const D d;
  V sums[kTileRows][kTileVectors];
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kTileVectors; ++v) {
      sums[i][v] = hn::LoadU(d, c + i * c_stride + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    V right[kTileVectors];
    for (int64_t v = 0; v < kTileVectors; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
    for (int64_t i = 0; i < kTileRows; ++i) {
      const V left = hn::Set(d, a[i]);
      for (int64_t v = 0; v < kTileVectors; ++v) {
        sums[i][v] = fused_multiply_add(left, right[v], sums[i][v]);
      }
    }
    a += kTileRows;
    b += kTileCols;
  }
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kTileVectors; ++v) {
      hn::StoreU(sums[i][v], d, c + i * c_stride + v * kLanes);
    }
  }
}

// A tile at the edge of C: the missing rows and columns are zeros that nobody keeps.
void add_edge_tile(int64_t rows, int64_t cols, int64_t depth, const float* a, const float* b,
                   float* c, int64_t c_stride) {
  float tile[kLargestTile] = {};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) tile[i * kTileCols + j] = c[i * c_stride + j];
  }
  add_tile(depth, a, b, tile, kTileCols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) c[i * c_stride + j] = tile[i * kTileCols + j];
  }
}

// [rows, depth] of A as panels of kTileRows rows, each [depth, kTileRows], zeros below the last.
void pack_rows(int64_t rows, int64_t depth, const ProductFactor& a, float* HWY_RESTRICT packed) {
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t count = rows - first < kTileRows ? rows - first : kTileRows;
    for (int64_t i = 0; i < kTileRows; ++i) {
      const float* from = a.data + (first + i) * a.row_stride;
      float* to = packed + first * depth + i;
      for (int64_t k = 0; k < depth; ++k)
        to[k * kTileRows] = i < count ? from[k * a.col_stride] : 0;
    }
  }
}

// [depth, cols] of B as [depth, kTileCols], zeros right of the last.
void pack_cols(int64_t cols, int64_t depth, const float* HWY_RESTRICT b, int64_t stride,
               float* HWY_RESTRICT packed) {
  const D d;
  for (int64_t k = 0; k < depth; ++k) {
    if (cols == kTileCols) {
      for (int64_t v = 0; v < kTileVectors; ++v) {
        hn::StoreU(hn::LoadU(d, b + k * stride + v * kLanes), d, packed + v * kLanes);
      }
    } else {
      for (int64_t j = 0; j < kTileCols; ++j) packed[j] = j < cols ? b[k * stride + j] : 0;
    }
    packed += kTileCols;
  }
}

// `scratch` holds kRowBlock x kDepthBlock and kDepthBlock x kTileCols floats.
void add_block_product(int64_t rows, int64_t cols, int64_t depth, ProductFactor a, ProductFactor b,
                       float* c, int64_t c_stride, float* scratch) {
  float* const left = scratch;
  float* const right = scratch + kRowBlock * kDepthBlock;
  for (int64_t first_k = 0; first_k < depth; first_k += kDepthBlock) {
    const int64_t terms = depth - first_k < kDepthBlock ? depth - first_k : kDepthBlock;
    for (int64_t first_i = 0; first_i < rows; first_i += kRowBlock) {
      const int64_t height = rows - first_i < kRowBlock ? rows - first_i : kRowBlock;
      ProductFactor block = a;
      block.data += first_i * a.row_stride + first_k * a.col_stride;
      pack_rows(height, terms, block, left);
      for (int64_t first_j = 0; first_j < cols; first_j += kTileCols) {
        const int64_t width = cols - first_j < kTileCols ? cols - first_j : kTileCols;
        pack_cols(width, terms, b.data + first_k * b.row_stride + first_j, b.row_stride, right);
        for (int64_t i = 0; i < height; i += kTileRows) {
          const int64_t count = height - i < kTileRows ? height - i : kTileRows;
          float* const tile = c + (first_i + i) * c_stride + first_j;
          if (count == kTileRows && width == kTileCols) {
            add_tile(terms, left + i * terms, right, tile, c_stride);
          } else {
            add_edge_tile(count, width, terms, left + i * terms, right, tile, c_stride);
          }
        }
      }
    }
  }
}

// Adds the product of one row's terms with rows of `b`, kListCols apart, to a row of C.
HWY_INLINE void add_list(const int32_t* indices, const float* values, int64_t count,
                         const float* HWY_RESTRICT b, float* HWY_RESTRICT c) {
  const D d;
  V sums[kListVectors];
  for (int64_t v = 0; v < kListVectors; ++v) sums[v] = hn::LoadU(d, c + v * kLanes);
  for (int64_t at = 0; at < count; ++at) {
    const V left = hn::Set(d, values[at]);
    const float* const right = b + indices[at] * kListCols;
    for (int64_t v = 0; v < kListVectors; ++v) {
      sums[v] = fused_multiply_add(left, hn::LoadU(d, right + v * kLanes), sums[v]);
    }
  }
  for (int64_t v = 0; v < kListVectors; ++v) hn::StoreU(sums[v], d, c + v * kLanes);
}

// A product with A as a list: row by row up to `ends`, depth indices in ascending order, and
// values. `used` tells which of the `depth` rows of B any row needs.
void add_listed_product(int64_t rows, int64_t cols, int64_t depth, const int64_t* ends,
                        const int32_t* indices, const float* values, const bool* used,
                        ProductFactor b, float* c, int64_t c_stride, float* scratch) {
  for (int64_t first_j = 0; first_j < cols; first_j += kListCols) {
    const int64_t width = cols - first_j < kListCols ? cols - first_j : kListCols;
    for (int64_t k = 0; k < depth; ++k) {
      if (!used[k]) continue;
      const float* const from = b.data + k * b.row_stride + first_j;
      float* const to = scratch + k * kListCols;
      for (int64_t j = 0; j < kListCols; ++j) to[j] = j < width ? from[j] : 0;
    }
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t begin = i == 0 ? 0 : ends[i - 1];
      const int64_t count = ends[i] - begin;
      if (count == 0) continue;
      float* const row = c + i * c_stride + first_j;
      if (width == kListCols) {
        add_list(indices + begin, values + begin, count, scratch, row);
        continue;
      }
      float edge[kListCols] = {};
      for (int64_t j = 0; j < width; ++j) edge[j] = row[j];
      add_list(indices + begin, values + begin, count, scratch, edge);
      for (int64_t j = 0; j < width; ++j) row[j] = edge[j];
    }
  }
}

int64_t scratch_floats() {
  constexpr int64_t kDense = kRowBlock * kDepthBlock + kDepthBlock * kTileCols;
  constexpr int64_t kListed = kDepthBlock * kListCols;
  return kDense > kListed ? kDense : kListed;
}

// `steps` fused multiply-adds in each lane of a few registers, as fast as they come.
// Returns the number of multiply-adds; the sum keeps them from being left out.
double multiply_registers(int64_t steps, float* sum) {
  const D d;
  constexpr int64_t kSums =
      8;  // two a cycle, four cycles each: enough to hide the latency, few enough to unroll
  const V factor = hn::Set(d, *sum);
  V sums[kSums];
  for (int64_t i = 0; i < kSums; ++i) sums[i] = factor;
  for (int64_t k = 0; k < steps; ++k) {
    for (int64_t i = 0; i < kSums; ++i) sums[i] = fused_multiply_add(sums[i], factor, factor);
  }
  V total = hn::Zero(d);
  for (int64_t i = 0; i < kSums; ++i) total = hn::Add(total, sums[i]);
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
  return static_cast<double>(steps * kSums * kLanes);
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace
}  // namespace k3::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3 {
namespace {

HWY_EXPORT(add_block_product);
HWY_EXPORT(add_listed_product);
HWY_EXPORT(scratch_floats);
HWY_EXPORT(multiply_registers);
HWY_EXPORT(target_name);

float* thread_scratch() {
  thread_local std::vector<float> scratch;
  const auto floats = static_cast<size_t>(HWY_DYNAMIC_DISPATCH(scratch_floats)());
  if (scratch.size() < floats) scratch.resize(floats);
  return scratch.data();
}

}  // namespace

void add_product(int64_t rows, int64_t cols, int64_t depth, ProductFactor a, ProductFactor b,
                 float* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(add_block_product)
  (rows, cols, depth, a, b, c, c_stride, thread_scratch());
}

ListedFactor::ListedFactor(int64_t rows, int64_t depth, ProductFactor a)
    : rows_(rows), depth_(depth) {
  K3_CHECK(depth <= kMostDepth);
  for (int64_t i = 0; i < rows; ++i) {
    const float* const row = a.data + i * a.row_stride;
    for (int64_t k = 0; k < depth; ++k) {
      const float value = row[k * a.col_stride];
      if (value == 0) continue;
      used_[static_cast<size_t>(k)] = true;
      indices_.push_back(static_cast<int32_t>(k));
      values_.push_back(value);
    }
    ends_.push_back(static_cast<int64_t>(indices_.size()));
  }
  terms_ = static_cast<int64_t>(indices_.size());
  // Tiles are more than twice as fast as lists.
  if (5 * terms_ < 2 * rows * depth) return;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      dense_.push_back(a.data[i * a.row_stride + k * a.col_stride]);
    }
  }
}

double ListedFactor::add_product_with(int64_t cols, ProductFactor b, float* c,
                                      int64_t c_stride) const {
  if (empty()) return 0;
  if (!dense_.empty()) {
    add_product(rows_, cols, depth_, {dense_.data(), depth_}, b, c, c_stride);
    return static_cast<double>(rows_ * depth_) * static_cast<double>(cols);
  }
  HWY_DYNAMIC_DISPATCH(add_listed_product)
  (rows_, cols, depth_, ends_.data(), indices_.data(), values_.data(), used_.data(), b, c, c_stride,
   thread_scratch());
  return static_cast<double>(terms_) * static_cast<double>(cols);
}

void add_product_parallel(int64_t rows, int64_t cols, int64_t depth, ProductFactor a,
                          ProductFactor b, float* c, int64_t c_stride) {
  constexpr int64_t kRows = 240;  // whole tiles of every instruction set
  constexpr int64_t kCols = 480;
  tbb::parallel_for(tbb::blocked_range2d<int64_t>(0, (rows + kRows - 1) / kRows, 1, 0,
                                                  (cols + kCols - 1) / kCols, 1),
                    [&](const tbb::blocked_range2d<int64_t>& tiles) {
                      const int64_t i = tiles.rows().begin() * kRows;
                      const int64_t j = tiles.cols().begin() * kCols;
                      ProductFactor left = a;
                      ProductFactor right = b;
                      left.data += i * a.row_stride;
                      right.data += j;
                      add_product(std::min(rows, tiles.rows().end() * kRows) - i,
                                  std::min(cols, tiles.cols().end() * kCols) - j, depth, left,
                                  right, c + i * c_stride + j, c_stride);
                    });
}

std::string_view product_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

double measure_multiply_peak() {
  // Many short pieces, so that the best of them ran undisturbed.
  constexpr int64_t kSteps = 1 << 16;
  double best = 0;
  for (int i = 0; i < 300; ++i) {
    float sum = 0.5F;
    const auto start = std::chrono::steady_clock::now();
    const double count = HWY_DYNAMIC_DISPATCH(multiply_registers)(kSteps, &sum);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (std::isfinite(sum)) best = std::max(best, count / elapsed.count());
  }
  return best;
}

}  // namespace k3
#endif  // HWY_ONCE
