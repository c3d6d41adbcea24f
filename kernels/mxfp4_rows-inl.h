// Rows of mxfp4 against activation codes.
//
// A chunk is one vector of codes; two chunks of a row, a pair, are taken together. Their halves of
// 64 bits are interleaved before anything else, so that each 64-bit lane holds half of a group of
// 32 inputs and no step before the shift leaves a lane: what a pair adds up is then one vector, and
// its eight groups are shifted at once. Nibbles come out of a vector of codes four to a 16-bit
// word, so activations lie in four planes that match, interleaved alike. Two rows are reduced
// together.
//
// AVX-512 looks nibbles up as words, others as bytes, which become words 256 times too large by
// staying in the upper half; a group's sum stays below 2^31 even so.
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

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

constexpr int64_t kPlanes = 4;
constexpr int64_t kChunkInputs = 2 * static_cast<int64_t>(kBytes);
constexpr int64_t kPairInputs = 2 * kChunkInputs;
constexpr int64_t kPairGroups = kPairInputs / kMxfp4GroupInputs;
constexpr int kCodeScaleBits = K3_HAS_AVX512 ? 0 : 8;

// Codes that an arranged vector takes.
inline int64_t arranged_mxfp4_codes(int64_t cols) {
  return align_up(cols, kPairInputs);
}

// Where multiply_add takes both products of a lane from neighbouring words, halves of 64 bits are
// what stays together; where from the two halves of 128 bits, quarters are.
#if HWY_TARGET == HWY_NEON
using DInterleaved = D32;
#else
using DInterleaved = D64;
#endif

template <class V>
HWY_INLINE void interleave_chunks(const V& first, const V& second, V& lower, V& upper) {
  const hn::DFromV<V> d;
  const DInterleaved whole;
  const auto a = hn::BitCast(whole, first);
  const auto b = hn::BitCast(whole, second);
  lower = hn::BitCast(d, hn::InterleaveLower(whole, a, b));
  upper = hn::BitCast(d, hn::InterleaveUpper(whole, a, b));
}

HWY_INLINE void arrange_pair(const int16_t* codes, int16_t* arranged) {
  const D16 d16;
  V16 first[kPlanes];
  V16 second[kPlanes];
  hn::LoadInterleaved4(d16, codes, first[0], first[1], first[2], first[3]);
  hn::LoadInterleaved4(d16, codes + kChunkInputs, second[0], second[1], second[2], second[3]);
  for (size_t k = 0; k < kPlanes; ++k) {
    V16 lower;
    V16 upper;
    interleave_chunks(first[k], second[k], lower, upper);
    hn::StoreU(lower, d16, arranged + k * (kBytes / 2));
    hn::StoreU(upper, d16, arranged + kChunkInputs + k * (kBytes / 2));
  }
}

inline void arrange_for_mxfp4(const int16_t* codes, int64_t cols, int16_t* arranged) {
  int64_t begin = 0;
  for (; begin + kPairInputs <= cols; begin += kPairInputs) {
    arrange_pair(codes + begin, arranged + begin);
  }
  if (begin == cols) return;
  int16_t rest[kPairInputs] = {};
  std::memcpy(rest, codes + begin, static_cast<size_t>(cols - begin) * sizeof(int16_t));
  arrange_pair(rest, arranged + begin);
}

// Doubled codes as decode_mxfp4_doubled gives them, twice: bit 4 of an index is not looked at.
#define K3_DOUBLED_CODES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
#if K3_HAS_AVX512
alignas(64) constexpr int16_t kDoubledCodes[32] = {K3_DOUBLED_CODES, K3_DOUBLED_CODES};
#else
alignas(16) constexpr int8_t kDoubledCodes[16] = {K3_DOUBLED_CODES};
#endif
#undef K3_DOUBLED_CODES

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

struct Mxfp4Tables {
#if K3_HAS_AVX512
  V16 values;
#else
  V8 values;
#endif
  V8 spread;
};

HWY_INLINE Mxfp4Tables load_mxfp4_tables() {
#if K3_HAS_AVX512
  return {hn::Load(D16(), kDoubledCodes), hn::Load(D8(), kShiftPlaces.places)};
#else
  return {hn::LoadDup128(D8(), kDoubledCodes), hn::Load(D8(), kShiftPlaces.places)};
#endif
}

// The doubled values of a vector of codes, times 2^kCodeScaleBits, by plane.
HWY_INLINE void decode_codes(const Mxfp4Tables& tables, VU8 bytes, V16* planes) {
  const D16 d16;
#if K3_HAS_AVX512
  const auto words = hn::BitCast(hn::RebindToUnsigned<D16>(), bytes);
  const auto look_up = [&tables](auto index) {
    return V16{_mm512_permutexvar_epi16(index.raw, tables.values.raw)};
  };
  (void)d16;
  planes[0] = look_up(words);
  planes[1] = look_up(hn::ShiftRight<4>(words));
  planes[2] = look_up(hn::ShiftRight<8>(words));
  planes[3] = look_up(hn::ShiftRight<12>(words));
#else
  const VU8 low = hn::And(bytes, hn::Set(DU8(), 15));
  const VU8 high = hn::ShiftRight<4>(bytes);
  const V16 even = hn::BitCast(d16, hn::TableLookupBytes(tables.values, hn::BitCast(D8(), low)));
  const V16 odd = hn::BitCast(d16, hn::TableLookupBytes(tables.values, hn::BitCast(D8(), high)));
  const V16 upper = hn::Set(d16, static_cast<int16_t>(0xff00));
  planes[0] = hn::ShiftLeft<8>(even);
  planes[1] = hn::ShiftLeft<8>(odd);
  planes[2] = hn::And(even, upper);
  planes[3] = hn::And(odd, upper);
#endif
}

// The sums of a pair's groups, each in its 64-bit lane.
HWY_INLINE V64 fold_groups(V32 sum) {
  const D32 d32;
  const D64 d64;
  if constexpr (kCodeScaleBits != 0) sum = hn::ShiftRight<kCodeScaleBits>(sum);
  sum = hn::Add(sum, hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, sum))));
  return hn::MulEven(sum, hn::Set(d32, 1));
}

// The shifts of a pair's groups, mxfp4_shift of kPairGroups scales, each in its 64-bit lane.
HWY_INLINE V64 load_shifts(const Mxfp4Tables& tables, const uint8_t* scales, VU8 least_exponent) {
  uint64_t bits = 0;
  std::memcpy(&bits, scales, static_cast<size_t>(kPairGroups));
  const VU8 bytes = hn::BitCast(DU8(), hn::Set(hn::RebindToUnsigned<D64>(), bits));
  const VU8 shifts = hn::Min(hn::SaturatedSub(bytes, least_exponent), hn::Set(DU8(), 31));
  return hn::BitCast(D64(), hn::TableLookupBytesOr0(hn::BitCast(D8(), shifts), tables.spread));
}

// Adds a pair of chunks to totals, for vectors that begin at x[t] + offset.
template <size_t kTile>
HWY_INLINE void add_mxfp4_pair(const Mxfp4Tables& tables, const uint8_t* codes,
                               const uint8_t* scales, VU8 least_exponent, const int16_t* const* x,
                               int64_t offset, V64* totals) {
  VU8 lower;
  VU8 upper;
  interleave_chunks(hn::LoadU(DU8(), codes), hn::LoadU(DU8(), codes + kBytes), lower, upper);
  V16 planes[2 * kPlanes];
  decode_codes(tables, lower, planes);
  decode_codes(tables, upper, planes + kPlanes);
  const V64 shifts = load_shifts(tables, scales, least_exponent);
  K3_UNROLL
  for (size_t t = 0; t < kTile; ++t) {
    V32 sum = hn::Zero(D32());
    K3_UNROLL
    for (size_t k = 0; k < 2 * kPlanes; ++k) {
      sum = multiply_add(planes[k], hn::LoadU(D16(), x[t] + offset + k * (kBytes / 2)), sum);
    }
    totals[t] = hn::Add(totals[t], hn::Shl(fold_groups(sum), shifts));
  }
}

// Sums of the inputs [begin, end) of one row in 64-bit lanes, for kTile arranged vectors. `begin`
// is a multiple of kPairInputs.
template <size_t kTile>
HWY_INLINE void sum_mxfp4_row(const Mxfp4Tables& tables, const uint8_t* codes,
                              const uint8_t* scales, VU8 least_exponent, int64_t begin, int64_t end,
                              int64_t ahead, const int16_t* const* x, V64* sums) {
  K3_UNROLL
  for (size_t t = 0; t < kTile; ++t) sums[t] = hn::Zero(D64());
  for (; begin + kPairInputs <= end; begin += kPairInputs) {
    for (size_t line = 0; line < 2 * kBytes; line += 64) prefetch_ahead(codes + line, ahead);
    add_mxfp4_pair<kTile>(tables, codes, scales, least_exponent, x, begin, sums);
    codes += 2 * kBytes;
    scales += kPairGroups;
  }
  if (begin < end) {  // in memory of their own: what lies behind them belongs to somebody else
    alignas(64) uint8_t last_codes[2 * kBytes] = {};
    uint8_t last_scales[kPairGroups] = {};
    std::memcpy(last_codes, codes, static_cast<size_t>((end - begin) / 2));
    std::memcpy(last_scales, scales, static_cast<size_t>((end - begin) / kMxfp4GroupInputs));
    add_mxfp4_pair<kTile>(tables, last_codes, last_scales, least_exponent, x, begin, sums);
  }
}

// The sums of the even and of the odd lanes.
template <class D>
HWY_INLINE auto add_pairs(D d, hn::Vec<D> lanes) {
  if constexpr (hn::MaxLanes(d) == 2) {
    return lanes;
  } else {
    const hn::Half<D> half;
    return add_pairs(half, hn::Add(hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)));
  }
}

// Adds the sums of the lanes of two rows to their totals.
HWY_INLINE void add_sums_of_lanes(V64 first, V64 second, int64_t& first_total,
                                  int64_t& second_total) {
  const auto both = add_pairs(D64(), hn::Add(hn::InterleaveLower(D64(), first, second),
                                             hn::InterleaveUpper(D64(), first, second)));
  // Unsigned, for a damaged pack's sums may wrap.
  first_total = static_cast<int64_t>(static_cast<uint64_t>(first_total) +
                                     static_cast<uint64_t>(hn::GetLane(both)));
  second_total = static_cast<int64_t>(static_cast<uint64_t>(second_total) +
                                      static_cast<uint64_t>(hn::ExtractLane(both, 1)));
}

// Adds the inputs [begin, end) of `rows` rows to totals[row * kTile + t].
template <size_t kTile>
void add_mxfp4_rows(const MatrixView& weights, int64_t row, int64_t rows, int64_t begin,
                    int64_t end, int64_t ahead, const int16_t* const* x, int64_t* totals) {
  const Mxfp4Tables tables = load_mxfp4_tables();
  const VU8 least = hn::Set(DU8(), static_cast<uint8_t>(weights.least_exponent));
  const int64_t code_stride = weights.row_stride_bytes;
  const int64_t scale_stride = weights.scales_per_row;
  const auto* codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * code_stride) + begin / 2;
  const uint8_t* scales = weights.scales + row * scale_stride + begin / kMxfp4GroupInputs;
  int64_t unused[kTile] = {};
  V64 first[kTile];
  V64 second[kTile];
  for (int64_t r = 0; r < rows; r += 2) {
    sum_mxfp4_row<kTile>(tables, codes, scales, least, begin, end, ahead, x, first);
    int64_t* second_totals = unused;
    if (r + 1 < rows) {
      second_totals = totals + kTile;
      sum_mxfp4_row<kTile>(tables, codes + code_stride, scales + scale_stride, least, begin, end,
                           ahead, x, second);
    } else {
      K3_UNROLL
      for (size_t t = 0; t < kTile; ++t) second[t] = hn::Zero(D64());
    }
    K3_UNROLL
    for (size_t t = 0; t < kTile; ++t) {
      add_sums_of_lanes(first[t], second[t], totals[t], second_totals[t]);
    }
    codes += 2 * code_stride;
    scales += 2 * scale_stride;
    hwy::Prefetch(scales + 256);
    totals += 2 * kTile;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_MXFP4_ROWS_INL_H_
