// Products of int16 codes, which fill 30 bits, added without ever leaving int32 registers.
//
// pmaddwd multiplies two int16 vectors and adds pairs of products, but two full products already
// fill int32, and widening after each costs more than the products. So the row's code is split, q =
// 256 h + l with h and l in -128..127 (what the range 32639 is for): h x q' and l x q' stay below
// 2^22, and 256 pairs of them, kMostTokens tokens, below 2^31. Two pmaddwd with two additions make
// 16 to 32 products; once per 512 tokens a sum 256 h-part + l-part goes to int64.
//
// A pair is two tokens of one channel. The columns' codes lie by pairs of tokens for 32 channels at
// a time, whatever the vector length; a block of rows is split into h and l once and meets all
// columns. Machines without pmaddwd run the same sums as a plain loop.
#include "kernels/gram.h"

#include <algorithm>
#include <array>

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"
#include "schema/layout.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (K3_FOREIGN_TARGETS | HWY_AVX3_DL | HWY_SVE)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gram_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef K3_KERNELS_GRAM_CPU_ONCE
#define K3_KERNELS_GRAM_CPU_ONCE
namespace k3::cpu {

constexpr int64_t kMostPairs = GramCodes::kMostTokens / 2;
constexpr int64_t kTile = GramCodes::kTileChannels;
constexpr int64_t kBlockRows = 8;  // a tile of columns is 32 KB: eight rows make up for reading it

// The codes of kBlockRows rows as halves of bytes, by pairs: [pair][row][2], so that a pair of a
// row is 32 bits to broadcast.
struct SplitRows {
  alignas(64) std::array<int16_t, kMostPairs * kBlockRows * 2> high;
  alignas(64) std::array<int16_t, kMostPairs * kBlockRows * 2> low;
};

// What a block of rows adds to one tile of columns.
using BlockSums = std::array<int64_t, kBlockRows * kTile>;

}  // namespace k3::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

// Magnitudes are compared as bits, in whose order infinities and then NaNs come last and stay.
K3_FLATTEN void raise_maxima_row(const float* x, int64_t width, float* maxima) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t c = 0; c < width; ++c) {
    const uint32_t size = __builtin_bit_cast(uint32_t, x[c]) & 0x7FFFFFFF;
    const uint32_t most = __builtin_bit_cast(uint32_t, maxima[c]);
    maxima[c] = __builtin_bit_cast(float, size > most ? size : most);
  }
}

#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

namespace hn = hwy::HWY_NAMESPACE;
using D16 = hn::CappedTag<int16_t, 32>;
using D32 = hn::RepartitionToWide<D16>;
constexpr int64_t kVectorChannels = static_cast<int64_t>(hn::MaxLanes(D32()));
// Of the tile at a time: rows x 2 vectors x 2 halves of accumulators fill AVX2's 16 registers.
constexpr int64_t kVectors = 2;

// Two vectors of channels against kRows rows.
template <int64_t kRows>
HWY_INLINE void multiply_rows(const SplitRows& rows, int64_t first_row, const int16_t* columns,
                              int64_t pairs, int64_t* sums) {
  const D16 d16;
  const D32 d32;
  using V32 = hn::Vec<D32>;
  V32 high[kRows][kVectors];
  V32 low[kRows][kVectors];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) high[r][v] = low[r][v] = hn::Zero(d32);
  }
  V32 unused = hn::Zero(d32);  // on x86 all of a pair's sum is in the returned vector
  const auto* high_pairs = reinterpret_cast<const int32_t*>(rows.high.data()) + first_row;
  const auto* low_pairs = reinterpret_cast<const int32_t*>(rows.low.data()) + first_row;
  for (int64_t p = 0; p < pairs; ++p) {
    hn::Vec<D16> column[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) {
      column[v] = hn::LoadU(d16, columns + p * kTile * 2 + v * kVectorChannels * 2);
    }
    for (int64_t r = 0; r < kRows; ++r) {
      const auto h = hn::BitCast(d16, hn::Set(d32, high_pairs[p * kBlockRows + r]));
      const auto l = hn::BitCast(d16, hn::Set(d32, low_pairs[p * kBlockRows + r]));
      for (int64_t v = 0; v < kVectors; ++v) {
        high[r][v] = hn::ReorderWidenMulAccumulate(d32, h, column[v], high[r][v], unused);
        low[r][v] = hn::ReorderWidenMulAccumulate(d32, l, column[v], low[r][v], unused);
      }
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    alignas(64) int32_t h[kVectors * kVectorChannels];
    alignas(64) int32_t l[kVectors * kVectorChannels];
    for (int64_t v = 0; v < kVectors; ++v) {
      hn::Store(high[r][v], d32, h + v * kVectorChannels);
      hn::Store(low[r][v], d32, l + v * kVectorChannels);
    }
    for (int64_t c = 0; c < kVectors * kVectorChannels; ++c) {
      sums[(first_row + r) * kTile + c] = int64_t{h[c]} * 256 + l[c];
    }
  }
}

void multiply_tile(const SplitRows& rows, const int16_t* columns, int64_t pairs, int64_t* sums) {
  // AVX-512 has 32 registers, the others 16.
  constexpr int64_t kRows = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  for (int64_t c = 0; c < kTile; c += kVectors * kVectorChannels) {
    for (int64_t r = 0; r < kBlockRows; r += kRows) {
      multiply_rows<kRows>(rows, r, columns + 2 * c, pairs, sums + c);
    }
  }
}

#else

K3_FLATTEN void multiply_tile(const SplitRows& rows, const int16_t* columns, int64_t pairs,
                              int64_t* sums) {
  for (int64_t r = 0; r < kBlockRows; ++r) {
    int32_t high[kTile] = {};
    int32_t low[kTile] = {};
    for (int64_t p = 0; p < pairs; ++p) {
      const int16_t* h = rows.high.data() + (p * kBlockRows + r) * 2;
      const int16_t* l = rows.low.data() + (p * kBlockRows + r) * 2;
      const int16_t* q = columns + p * kTile * 2;
      K3_INDEPENDENT_ITERATIONS
      for (int64_t c = 0; c < kTile; ++c) {
        high[c] += h[0] * q[2 * c] + h[1] * q[2 * c + 1];
        low[c] += l[0] * q[2 * c] + l[1] * q[2 * c + 1];
      }
    }
    for (int64_t c = 0; c < kTile; ++c) sums[r * kTile + c] = int64_t{high[c]} * 256 + low[c];
  }
}

#endif

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(raise_maxima_row);
HWY_EXPORT(multiply_tile);

namespace {

// The rows of `block`, at most kBlockRows; those that it lacks are zero.
void split_rows(const GramCodes& codes, RowRange block, SplitRows& split) {
  split.high.fill(0);
  split.low.fill(0);
  for (int64_t channel = block.begin; channel < block.end; ++channel) {
    const int16_t* pairs = codes.tile(channel / kTile) + channel % kTile * 2;
    for (int64_t p = 0; p < codes.pairs(); ++p) {
      for (int64_t i = 0; i < 2; ++i) {
        const int code = pairs[p * kTile * 2 + i];
        const int low = static_cast<int8_t>(code & 0xFF);
        const auto at = static_cast<size_t>((p * kBlockRows + channel - block.begin) * 2 + i);
        split.high[at] = static_cast<int16_t>((code - low) / 256);
        split.low[at] = static_cast<int16_t>(low);
      }
    }
  }
}

// Adds one block of rows to the columns that `place` keeps; `sums` starts at row `first_row`.
void add_block(const GramPlace& place, int64_t first_row, RowRange block, const GramCodes& y,
               const GramCodes& x, int64_t* sums) {
  SplitRows split;
  split_rows(y, block, split);
  BlockSums products;
  for (int64_t tile = place.first_col(block.begin) / kTile; tile * kTile < place.width; ++tile) {
    HWY_DYNAMIC_DISPATCH(multiply_tile)(split, x.tile(tile), x.pairs(), products.data());
    const int64_t tile_end = std::min((tile + 1) * kTile, place.width);
    for (int64_t r = block.begin; r < block.end; ++r) {
      int64_t* row = sums + place.entries({first_row, r}) - place.first_col(r);
      const int64_t* product = products.data() + (r - block.begin) * kTile - tile * kTile;
      for (int64_t c = std::max(place.first_col(r), tile * kTile); c < tile_end; ++c) {
        row[c] += product[c];
      }
    }
  }
}

}  // namespace

bool raise_maxima(const float* x, int64_t tokens, int64_t width, float* maxima) {
  constexpr int64_t kChannels = 512;  // by channels, so that each maximum has one writer
  parallel_ranges(divide_up(width, kChannels), tokens * kChannels / 8,
                  [&](int64_t begin, int64_t end) {
                    const int64_t first = begin * kChannels;
                    const int64_t count = std::min(end * kChannels, width) - first;
                    for (int64_t t = 0; t < tokens; ++t) {
                      HWY_DYNAMIC_DISPATCH(raise_maxima_row)
                      (x + t * width + first, count, maxima + first);
                    }
                  });
  return std::all_of(maxima, maxima + width, [](float most) { return std::isfinite(most); });
}

GramCodes::GramCodes(int64_t width)
    : width_(width), codes_(static_cast<size_t>(bytes(width)) / sizeof(int16_t)) {}

int64_t GramCodes::bytes(int64_t width) {
  return align_up(width, kTile) * kMostTokens * static_cast<int64_t>(sizeof(int16_t));
}

void GramCodes::set(const float* x, int64_t tokens, const int16_t* exponents) {
  K3_CHECK(tokens >= 0 && tokens <= kMostTokens);
  pairs_ = divide_up(tokens, int64_t{2});
  parallel_ranges(divide_up(width_, kTile), tokens * kTile, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      int16_t* codes = codes_.data() + tile * kTile * kMostTokens;
      const int64_t channels = std::min(kTile, width_ - tile * kTile);
      std::array<double, kTile> inverse_steps;
      for (int64_t c = 0; c < channels; ++c) {
        inverse_steps[static_cast<size_t>(c)] = power_of_two(-exponents[tile * kTile + c]);
      }
      if (tokens % 2 != 0) std::fill_n(codes + (pairs_ - 1) * kTile * 2, kTile * 2, int16_t{0});
      for (int64_t t = 0; t < tokens; ++t) {
        const float* values = x + t * width_ + tile * kTile;
        int16_t* to = codes + t / 2 * kTile * 2 + t % 2;
        for (int64_t c = 0; c < channels; ++c) {
          to[2 * c] = exact_activation_code(values[c], inverse_steps[static_cast<size_t>(c)]);
        }
      }
    }
  });
}

void add_gram(const GramPlace& place, RowRange rows, const GramCodes& y, const GramCodes& x,
              int64_t* sums) {
  K3_CHECK(y.width() == place.width && x.width() == place.width && y.pairs() == x.pairs());
  // Sixteen multiply-adds or so make one of parallel_ranges' steps.
  parallel_ranges(
      divide_up(rows.end - rows.begin, kBlockRows), kBlockRows * place.width * x.pairs() / 8,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = rows.begin + i * kBlockRows;
          add_block(place, rows.begin, {first, std::min(first + kBlockRows, rows.end)}, y, x, sums);
        }
      });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
