// Rows of int8 against activation codes in their own order, as 16-bit products.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
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

// Adds the blocks [begin, end) of one row to totals, for kTile vectors that are padded with zeros
// to whole blocks.
template <size_t kTile>
void add_int8_row(const MatrixView& weights, int64_t row, int64_t begin, int64_t end, int64_t ahead,
                  const int16_t* const* x, int64_t* totals) {
  const D16 d16;
  const D32 d32;
  const D64 d64;
  constexpr size_t kCodes = kBytes / 2;
  constexpr size_t kBlockVectors = kBlockInputs / kCodes;
  const auto* codes =
      reinterpret_cast<const int8_t*>(weights.codes + row * weights.row_stride_bytes);
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
  hwy::Prefetch(multipliers + begin + 256);
  V64 sums[kTile];
  for (size_t t = 0; t < kTile; ++t) sums[t] = hn::Zero(d64);
  for (int64_t block = begin; block < end; ++block) {
    const auto first = static_cast<size_t>(block * kBlockInputs);
    for (int64_t line = 0; line < kBlockInputs; line += 64) {
      const auto* at = reinterpret_cast<const uint8_t*>(codes) + first + line;
      prefetch_ahead(at, ahead);
      prefetch_near<kTile>(at);
    }
    V32 block_sums[kTile];  // below 2^30 together
    for (size_t t = 0; t < kTile; ++t) block_sums[t] = hn::Zero(d32);
    for (size_t v = 0; v < kBlockVectors; ++v) {
      const size_t at = first + v * kCodes;
      const V16 w = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<int8_t, D16>(), codes + at));
      for (size_t t = 0; t < kTile; ++t) {
        block_sums[t] = multiply_add(w, hn::LoadU(d16, x[t] + at), block_sums[t]);
      }
    }
    const V32 multiplier = hn::Set(d32, multipliers[block]);
    for (size_t t = 0; t < kTile; ++t) {
      // Pairs of lanes fit 32 bits, so half as many have to be multiplied in 64.
      const V32 odd = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, block_sums[t])));
      sums[t] = hn::Add(sums[t], hn::MulEven(hn::Add(block_sums[t], odd), multiplier));
    }
  }
  for (size_t t = 0; t < kTile; ++t) totals[t] += sum_of_lanes(sums[t]);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_INT8_ROWS_INL_H_
