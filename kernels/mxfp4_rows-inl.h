// Rows of mxfp4 against activation codes.
//
// A row of few pairs costs as much to reduce as to multiply, so as many rows as a vector has 64-bit
// lanes are reduced together. Two rows share the loads of activations, which would else take longer
// than the arithmetic.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/matmul.h"
#include "kernels/simd_targets.h"

#if defined(K3_KERNELS_MXFP4_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_KERNELS_MXFP4_ROWS_INL_H_
#undef K3_KERNELS_MXFP4_ROWS_INL_H_
#else
#define K3_KERNELS_MXFP4_ROWS_INL_H_
#endif

#include "kernels/lanes-inl.h"
#include "kernels/mxfp4_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

// From a pair's shifts to the 64-bit lanes of its groups: lane 2 j has group j of the first chunk,
// lane 2 j + 1 of the second.
struct ShiftPlaces {
  alignas(64) int8_t places[kBytes];
};
constexpr ShiftPlaces kShiftPlaces = [] {
  ShiftPlaces made{};
  for (size_t i = 0; i < kBytes; ++i) {
    const size_t lane = i / 8;
    const size_t group = lane % 2 * static_cast<size_t>(kPairGroups) / 2 + lane / 2;
    made.places[i] = i % 8 == 0 ? static_cast<int8_t>(group) : int8_t{-128};  // -128 gives zero
  }
  return made;
}();

// The sums of a pair's groups times their factors, each in its 64-bit lane.
HWY_INLINE V64 fold_groups(V32 sum, V32 factors) {
  const D32 d32;
  const D64 d64;
  if constexpr (kCodeScaleBits != 0) sum = hn::ShiftRight<kCodeScaleBits>(sum);
  sum = hn::Add(sum, hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, sum))));
  return hn::MulEven(sum, factors);
}

// The factors of a pair's groups, each in its 64-bit lane: -2^shift, for the shifts mxfp4_shift of
// kPairGroups scales. What 31 gives fits 32 bits only with this sign.
HWY_INLINE V32 load_factors(V8 spread, const uint8_t* scales, VU8 least_exponent) {
  uint64_t bits = 0;
  std::memcpy(&bits, scales, static_cast<size_t>(kPairGroups));
  const VU8 bytes = hn::BitCast(DU8(), hn::Set(hn::RebindToUnsigned<D64>(), bits));
  const VU8 shifts = hn::Min(hn::SaturatedSub(bytes, least_exponent), hn::Set(DU8(), 31));
  const V64 lanes = hn::BitCast(D64(), hn::TableLookupBytesOr0(hn::BitCast(D8(), shifts), spread));
  return hn::BitCast(D32(), hn::Shl(hn::Set(D64(), -1), lanes));
}

// What a block of rows of one matrix shares.
struct Mxfp4Block {
  CodeTable codes;
  V8 spread;  // kShiftPlaces
  VU8 least_exponent;
  int64_t code_stride;
  int64_t scale_stride;
};

// Adds a pair of chunks of kRows rows, so far apart, to sums[row * kTile + t], for vectors whose
// arranged pair is at x[t] + offset.
template <size_t kRows, size_t kTile>
HWY_INLINE void add_mxfp4_pairs(const Mxfp4Block& block, const uint8_t* codes, int64_t code_stride,
                                const uint8_t* scales, int64_t scale_stride,
                                const int16_t* const* x, int64_t offset, V64* sums) {
  Plane planes[kRows][2 * kPlanes];
  V32 factors[kRows];
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    VU8 lower;
    VU8 upper;
    interleave_chunks(hn::LoadU(DU8(), codes), hn::LoadU(DU8(), codes + kBytes), lower, upper);
    decode_codes(block.codes, lower, planes[r]);
    decode_codes(block.codes, upper, planes[r] + kPlanes);
    factors[r] = load_factors(block.spread, scales, block.least_exponent);
    codes += code_stride;
    scales += scale_stride;
  }
  K3_UNROLL
  for (size_t t = 0; t < kTile; ++t) {
    V32 products[kRows];
    multiply_pairs<kRows>(planes, x[t] + offset, products);
    K3_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      V64& sum = sums[r * kTile + t];
      sum = hn::Sub(sum, fold_groups(products[r], factors[r]));
    }
  }
}

// Sums of `pairs` pairs and `rest` more inputs of kRows rows in 64-bit lanes, alike.
template <size_t kRows, size_t kTile>
HWY_INLINE void sum_mxfp4_rows(const Mxfp4Block& block, const uint8_t* codes, const uint8_t* scales,
                               int64_t pairs, int64_t rest, int64_t ahead, const int16_t* const* x,
                               V64* to) {
  V64 sums[kRows * kTile];
  K3_UNROLL
  for (size_t i = 0; i < kRows * kTile; ++i) sums[i] = hn::Zero(D64());
  const int64_t end = pairs * kPairCodes;
  for (int64_t offset = 0; offset < end; offset += kPairCodes) {
    K3_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t line = 0; line < 2 * kBytes; line += 64) {
        const uint8_t* at = codes + static_cast<int64_t>(r) * block.code_stride + line;
        prefetch_ahead(at, ahead);
        prefetch_near<kTile>(at);
      }
    }
    add_mxfp4_pairs<kRows, kTile>(block, codes, block.code_stride, scales, block.scale_stride, x,
                                  offset, sums);
    codes += 2 * kBytes;
    scales += kPairGroups;
  }
  if (rest > 0) {  // in memory of their own: what lies behind them belongs to somebody else
    alignas(64) uint8_t last_codes[kRows][2 * kBytes] = {};
    uint8_t last_scales[kRows][kPairGroups] = {};
    for (size_t r = 0; r < kRows; ++r) {
      const auto row = static_cast<int64_t>(r);
      std::memcpy(last_codes[r], codes + row * block.code_stride, static_cast<size_t>(rest / 2));
      std::memcpy(last_scales[r], scales + row * block.scale_stride,
                  static_cast<size_t>(rest / kMxfp4GroupInputs));
    }
    add_mxfp4_pairs<kRows, kTile>(block, last_codes[0], 2 * kBytes, last_scales[0], kPairGroups, x,
                                  end, sums);
  }
  K3_UNROLL
  for (size_t i = 0; i < kRows * kTile; ++i) to[i] = sums[i];
}

// Rows that share their loads of activations, where there are registers for their planes.
template <size_t kTile>
constexpr size_t kMxfp4Rows = K3_HAS_VNNI || (K3_HAS_AVX512 && kTile == 1) ? 2 : 1;

// Rows reduced together: a vector of their sums.
constexpr size_t kReducedRows = hn::MaxLanes(D64());

HWY_INLINE V64 add_neighbours(V64 a, V64 b) {
  return hn::Add(hn::InterleaveLower(D64(), a, b), hn::InterleaveUpper(D64(), a, b));
}

template <class D>
HWY_INLINE hn::Vec<D> add_halves_of(D d, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
}

// Lane r is the sum of the lanes of rows[r].
HWY_INLINE V64 add_lanes_of_rows(const V64* rows) {
  const D64 d64;
  const V64 first = add_neighbours(rows[0], rows[1]);
  if constexpr (kReducedRows == 2) {
    return first;
  } else if constexpr (kReducedRows == 4) {
    return add_halves_of(d64, first, add_neighbours(rows[2], rows[3]));
  } else {
    const V64 second = add_neighbours(rows[2], rows[3]);
    const V64 outer = add_halves_of(d64, first, add_neighbours(rows[4], rows[5]));
    const V64 inner = add_halves_of(d64, second, add_neighbours(rows[6], rows[7]));
    return hn::Add(hn::OddEvenBlocks(inner, outer),
                   hn::SwapAdjacentBlocks(hn::OddEvenBlocks(outer, inner)));
  }
}

// Adds the inputs [begin, end) of `rows` rows to totals[t * stride + row], whose stride is a
// multiple of kReducedRows; what lies behind the rows up to the next multiple is written, too.
template <size_t kTile>
void add_mxfp4_rows(const MatrixView& weights, int64_t row, int64_t rows, int64_t begin,
                    int64_t end, int64_t ahead, const int16_t* const* x, int64_t stride,
                    int64_t* totals) {
  const Mxfp4Block block{
      .codes = load_code_table(),
      .spread = hn::Load(D8(), kShiftPlaces.places),
      .least_exponent = hn::Set(DU8(), static_cast<uint8_t>(weights.least_exponent)),
      .code_stride = weights.row_stride_bytes,
      .scale_stride = weights.scales_per_row};
  const auto* codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * block.code_stride) + begin / 2;
  const uint8_t* scales = weights.scales + row * block.scale_stride + begin / kMxfp4GroupInputs;
  const int64_t pairs = (end - begin) / kPairInputs;
  const int64_t rest = (end - begin) % kPairInputs;
  const int16_t* from[kTile];
  for (size_t t = 0; t < kTile; ++t) from[t] = x[t] + begin / kPairInputs * kPairCodes;
  constexpr auto kStep = static_cast<int64_t>(kReducedRows);
  constexpr size_t kRows = kMxfp4Rows<kTile>;
  const int64_t distance = beyond_rows(ahead, static_cast<int64_t>(kRows) * block.code_stride);
  for (int64_t r = 0; r < rows; r += kStep) {
    V64 sums[kReducedRows][kTile];
    const auto count = static_cast<size_t>(rows - r < kStep ? rows - r : kStep);
    size_t i = 0;
    for (; i + kRows <= count; i += kRows) {
      sum_mxfp4_rows<kRows, kTile>(block, codes, scales, pairs, rest, distance, from, sums[i]);
      hwy::Prefetch(scales + 256);
      codes += static_cast<int64_t>(kRows) * block.code_stride;
      scales += static_cast<int64_t>(kRows) * block.scale_stride;
    }
    if (i < count) {
      sum_mxfp4_rows<1, kTile>(block, codes, scales, pairs, rest, distance, from, sums[i]);
      ++i;
    }
    for (; i < kReducedRows; ++i) {
      for (size_t t = 0; t < kTile; ++t) sums[i][t] = hn::Zero(D64());
    }
    for (size_t t = 0; t < kTile; ++t) {
      V64 of_vector[kReducedRows];
      K3_UNROLL
      for (size_t j = 0; j < kReducedRows; ++j) of_vector[j] = sums[j][t];
      int64_t* total = totals + static_cast<int64_t>(t) * stride + r;
      hn::StoreU(hn::Add(hn::LoadU(D64(), total), add_lanes_of_rows(of_vector)), D64(), total);
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_MXFP4_ROWS_INL_H_
