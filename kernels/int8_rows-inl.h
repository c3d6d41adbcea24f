// Rows of int8 against activation codes in their own order, as 16-bit products. Rows are read one
// behind the other, two blocks a step: see kStrideBytes.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/simd_targets.h"
#include "schema/formats/int8.h"
#include "schema/matrix_view.h"

#if defined(K3_KERNELS_INT8_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_KERNELS_INT8_ROWS_INL_H_
#undef K3_KERNELS_INT8_ROWS_INL_H_
#else
#define K3_KERNELS_INT8_ROWS_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

// Adds kBlocks blocks of a row to sums, for kTile vectors.
template <size_t kBlocks, size_t kTile>
HWY_INLINE void add_int8_blocks(const int8_t* codes, const uint8_t* multipliers,
                                const int16_t* const* x, size_t first, V64* sums) {
  const D16 d16;
  const D32 d32;
  const D64 d64;
  constexpr size_t kCodes = kBytes / 2;
  K3_UNROLL
  for (size_t block = 0; block < kBlocks; ++block) {
    V32 block_sums[kTile];  // below 2^30 together
    K3_UNROLL
    for (size_t t = 0; t < kTile; ++t) block_sums[t] = hn::Zero(d32);
    K3_UNROLL
    for (size_t v = 0; v < static_cast<size_t>(kBlockInputs); v += kCodes) {
      const size_t at = first + block * static_cast<size_t>(kBlockInputs) + v;
      const V16 w = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<int8_t, D16>(), codes + at));
      K3_UNROLL
      for (size_t t = 0; t < kTile; ++t) {
        block_sums[t] = multiply_add(w, hn::LoadU(d16, x[t] + at), block_sums[t]);
      }
    }
    const V32 multiplier = hn::Set(d32, multipliers[block]);
    K3_UNROLL
    for (size_t t = 0; t < kTile; ++t) {
      // Pairs of lanes fit 32 bits, so half as many have to be multiplied in 64.
      const V32 odd = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, block_sums[t])));
      sums[t] = hn::Add(sums[t], hn::MulEven(hn::Add(block_sums[t], odd), multiplier));
    }
  }
}

// Adds the blocks [begin, end) of one row to totals, for kTile vectors that are padded with zeros
// to whole blocks.
template <size_t kTile>
void add_int8_row(const MatrixView& weights, int64_t row, int64_t begin, int64_t end, int64_t ahead,
                  const int16_t* const* x, int64_t* totals) {
  constexpr int64_t kStep = 2;
  static_assert(kStep * kBlockInputs >= kStrideBytes);
  const auto* codes =
      reinterpret_cast<const int8_t*>(weights.codes + row * weights.row_stride_bytes);
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
  hwy::Prefetch(multipliers + begin + 256);
  V64 sums[kTile];
  for (size_t t = 0; t < kTile; ++t) sums[t] = hn::Zero(D64());
  int64_t block = begin;
  for (; block + kStep <= end; block += kStep) {
    const int64_t first = block * kBlockInputs;
    if constexpr (kTile > 1) {  // too slow for the processor to look far ahead by itself
      for (int64_t line = 0; line < kStep * kBlockInputs; line += 64) {
        prefetch_ahead(reinterpret_cast<const uint8_t*>(codes) + first + line, ahead);
      }
    }
    add_int8_blocks<kStep, kTile>(codes, multipliers + block, x, static_cast<size_t>(first), sums);
  }
  if (block < end) {
    add_int8_blocks<1, kTile>(codes, multipliers + block, x,
                              static_cast<size_t>(block * kBlockInputs), sums);
  }
  for (size_t t = 0; t < kTile; ++t) totals[t] += sum_of_lanes(sums[t]);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_INT8_ROWS_INL_H_
