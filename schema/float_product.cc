// The usual blocking of a matrix product: a block of A and a strip of B are packed so that the
// innermost loop reads both straight through, and a tile of C stays in registers over a block of k.
// Nothing is summed on the side: a tile starts from C's values and goes back there, which is what
// makes the order of terms that of the header, whatever the block sizes are.
//
// The tile is as large as the registers of an instruction set allow. Only instruction sets with a
// fused multiply-add are worth a copy; the portable one calls std::fma and gives the same bits.
#include "schema/float_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "schema/error.h"
#include "schema/highway_targets.h"
#include "schema/stopwatch.h"

// Arrays of registers need a vector size known when compiling, which rules SVE out; its machines
// run the NEON code.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (K3_FOREIGN_TARGETS | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "schema/float_product.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::HWY_NAMESPACE {
namespace {  // so that calls are inlined in position-independent code, too

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
constexpr int64_t kTileRows = 4;
constexpr int64_t kTileVectors = 3;
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
static_assert(kTileVectors == 2 || kTileVectors == 3);  // see add_columns

constexpr int64_t kDepthBlock = 256;           // a strip of B is 48 KB at most
constexpr int64_t kRowBlock = 32 * kTileRows;  // and a block of A 256 KB, for which L2 has room

// Terms of a list meet a row of B of this many columns in registers, a group of 160 or a half or
// a quarter of it.
constexpr int64_t kListVectors = kLanes < 4 ? 16 : 10;
constexpr int64_t kListCols = kListVectors * kLanes;
static_assert(ListedTerms::kMostDepth <= kDepthBlock);

// Highway's portable MulAdd rounds twice.
HWY_INLINE V fused_multiply_add(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}

// The first kVectors vectors of a tile of C over `depth` terms. Packed: a is [depth, kTileRows],
// b is [depth, kTileCols].
template <int64_t kVectors>
HWY_INLINE void add_tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                         float* HWY_RESTRICT c, int64_t c_stride) {
  const D d;
  V sums[kTileRows][kVectors];
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kVectors; ++v) {
      sums[i][v] = hn::LoadU(d, c + i * c_stride + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    V right[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
    for (int64_t i = 0; i < kTileRows; ++i) {
      const V left = hn::Set(d, a[i]);
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[i][v] = fused_multiply_add(left, right[v], sums[i][v]);
      }
    }
    a += kTileRows;
    b += kTileCols;
  }
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[i][v], d, c + i * c_stride + v * kLanes);
    }
  }
}

// A tile's first `cols` columns and what they lack of whole vectors.
HWY_INLINE void add_columns(int64_t cols, int64_t depth, const float* a, const float* b, float* c,
                            int64_t c_stride) {
  if (cols <= kLanes) {
    add_tile<1>(depth, a, b, c, c_stride);
  } else if (cols <= 2 * kLanes) {
    add_tile<2>(depth, a, b, c, c_stride);
  } else {
    add_tile<kTileVectors>(depth, a, b, c, c_stride);
  }
}

// A tile over the edge of C: what lies beyond is zeros that nobody keeps.
void add_edge_tile(int64_t rows, int64_t cols, int64_t depth, const float* a, const float* b,
                   float* c, int64_t c_stride) {
  float tile[kTile] = {};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) tile[i * kTileCols + j] = c[i * c_stride + j];
  }
  add_columns(cols, depth, a, b, tile, kTileCols);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) c[i * c_stride + j] = tile[i * kTileCols + j];
  }
}

// [rows, depth] of A as panels of kTileRows rows, each [depth, kTileRows], zeros below the last.
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

// [depth, cols] of B as [depth, kTileCols], zeros right of the last up to a whole vector. Reads B
// along whichever of its dimensions is contiguous.
void pack_cols(int64_t cols, int64_t depth, FloatMatrix b, float* HWY_RESTRICT packed) {
  const D d;
  const int64_t whole = (cols + kLanes - 1) / kLanes * kLanes;
  if (b.col_stride != 1) {
    for (int64_t j = 0; j < whole; ++j) {
      const bool there = j < cols;
      const float* const from = b.data + (there ? j : 0) * b.col_stride;
      for (int64_t k = 0; k < depth; ++k) {
        packed[k * kTileCols + j] = there ? from[k * b.row_stride] : 0;
      }
    }
    return;
  }
  for (int64_t k = 0; k < depth; ++k, packed += kTileCols) {
    const float* const from = b.data + k * b.row_stride;
    if (cols == kTileCols) {
      for (int64_t v = 0; v < kTileVectors; ++v) {
        hn::StoreU(hn::LoadU(d, from + v * kLanes), d, packed + v * kLanes);
      }
    } else {
      for (int64_t j = 0; j < whole; ++j) packed[j] = j < cols ? from[j] : 0;
    }
  }
}

// `scratch` holds kRowBlock x kDepthBlock and kDepthBlock x kTileCols floats.
void add_block_product(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                       float* c, int64_t c_stride, float* scratch) {
  float* const left = scratch;
  float* const right = scratch + kRowBlock * kDepthBlock;
  for (int64_t first_k = 0; first_k < depth; first_k += kDepthBlock) {
    const int64_t terms = depth - first_k < kDepthBlock ? depth - first_k : kDepthBlock;
    for (int64_t first_i = 0; first_i < rows; first_i += kRowBlock) {
      const int64_t height = rows - first_i < kRowBlock ? rows - first_i : kRowBlock;
      pack_rows(height, terms, a.at(first_i, first_k), left);
      for (int64_t first_j = 0; first_j < cols; first_j += kTileCols) {
        const int64_t width = cols - first_j < kTileCols ? cols - first_j : kTileCols;
        pack_cols(width, terms, b.at(first_k, first_j), right);
        for (int64_t i = 0; i < height; i += kTileRows) {
          const int64_t count = height - i < kTileRows ? height - i : kTileRows;
          float* const tile = c + (first_i + i) * c_stride + first_j;
          if (count == kTileRows && width % kLanes == 0) {
            add_columns(width, terms, left + i * terms, right, tile, c_stride);
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

// `scratch` holds kDepthBlock x kListCols floats.
void add_list_product(const ListedTerms& a, int64_t cols, FloatMatrix b, float* c, int64_t c_stride,
                      float* scratch) {
  for (int64_t first_j = 0; first_j < cols; first_j += kListCols) {
    const int64_t width = cols - first_j < kListCols ? cols - first_j : kListCols;
    for (int64_t k = 0; k < a.depth; ++k) {
      if (!a.used[k]) continue;
      const float* const from = b.data + k * b.row_stride + first_j;
      float* const to = scratch + k * kListCols;
      for (int64_t j = 0; j < kListCols; ++j) to[j] = j < width ? from[j] : 0;
    }
    for (int64_t i = 0; i < a.rows; ++i) {
      const int64_t begin = i == 0 ? 0 : a.ends[i - 1];
      const int64_t count = a.ends[i] - begin;
      if (count == 0) continue;
      float* const row = c + i * c_stride + first_j;
      if (width == kListCols) {
        add_list(a.indices + begin, a.values + begin, count, scratch, row);
        continue;
      }
      float edge[kListCols] = {};
      for (int64_t j = 0; j < width; ++j) edge[j] = row[j];
      add_list(a.indices + begin, a.values + begin, count, scratch, edge);
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
HWY_EXPORT(add_list_product);
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

void add_float_product(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                       float* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(add_block_product)
  (rows, cols, depth, a, b, c, c_stride, thread_scratch());
}

void add_listed_product(const ListedTerms& a, int64_t cols, FloatMatrix b, float* c,
                        int64_t c_stride) {
  K3_CHECK(a.depth <= ListedTerms::kMostDepth && b.col_stride == 1);
  HWY_DYNAMIC_DISPATCH(add_list_product)(a, cols, b, c, c_stride, thread_scratch());
}

std::string_view float_product_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

double measure_multiply_peak() {
  // Many short pieces, so that the best of them ran undisturbed.
  constexpr int64_t kSteps = 1 << 16;
  double best = 0;
  for (int i = 0; i < 300; ++i) {
    float sum = 0.5F;
    const Stopwatch watch;
    const double count = HWY_DYNAMIC_DISPATCH(multiply_registers)(kSteps, &sum);
    const double seconds = watch.seconds();
    if (std::isfinite(sum)) best = std::max(best, count / seconds);
  }
  return best;
}

}  // namespace k3
#endif  // HWY_ONCE
