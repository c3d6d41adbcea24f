// Rows of mxfp4 against activation codes.
//
// Nibbles come out of a vector of codes four to a 16-bit word, so activations lie in four planes
// that match: plane k of a chunk holds the inputs 4 i + k. A chunk is one vector of codes, two
// chunks are taken together because their sums of groups then fill one vector of 64-bit lanes. A
// group of 32 inputs is 128 bits of codes; no step before the shift crosses such a boundary.
//
// AVX-512 looks nibbles up as words, others as bytes, which become words 256 times too large by
// staying in the upper half; a group's sum stays below 2^31 even so.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/matmul.h"

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
constexpr int64_t kChunkGroups = kChunkInputs / kMxfp4GroupInputs;
constexpr int64_t kPairInputs = 2 * kChunkInputs;
constexpr int64_t kPairGroups = 2 * kChunkGroups;
constexpr int kCodeScaleBits = K3_HAS_AVX512 ? 0 : 8;

// Codes that an arranged vector takes.
inline int64_t arranged_mxfp4_codes(int64_t cols) {
  return align_up(cols, kPairInputs);
}

inline void arrange_for_mxfp4(const int16_t* codes, int64_t cols, int16_t* arranged) {
  constexpr int64_t kPlaneInputs = kChunkInputs / kPlanes;
  const int64_t whole = cols / kChunkInputs * kChunkInputs;
  for (int64_t begin = 0; begin < whole; begin += kChunkInputs) {
    for (int64_t k = 0; k < kPlanes; ++k) {
      for (int64_t i = 0; i < kPlaneInputs; ++i) {
        arranged[begin + k * kPlaneInputs + i] = codes[begin + kPlanes * i + k];
      }
    }
  }
  for (int64_t at = whole; at < arranged_mxfp4_codes(cols); ++at) {
    const int64_t place = at % kChunkInputs;
    const int64_t input = at - place + place % kPlaneInputs * kPlanes + place / kPlaneInputs;
    arranged[at] = input < cols ? codes[input] : int16_t{0};
  }
}

// Doubled codes as decode_mxfp4_doubled gives them, twice: bit 4 of an index is not looked at.
#define K3_DOUBLED_CODES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
#if K3_HAS_AVX512
alignas(64) constexpr int16_t kDoubledCodes[32] = {K3_DOUBLED_CODES, K3_DOUBLED_CODES};
#else
alignas(16) constexpr int8_t kDoubledCodes[16] = {K3_DOUBLED_CODES};
#endif
#undef K3_DOUBLED_CODES

// From a pair's shifts to the 64-bit lanes of its groups.
struct ShiftPlaces {
  alignas(64) int8_t places[kBytes];
};
constexpr ShiftPlaces kShiftPlaces = [] {
  ShiftPlaces made{};
  for (size_t i = 0; i < kBytes; ++i) {
    const size_t lane = i / 8;
    const size_t group = lane % 2 * static_cast<size_t>(kChunkGroups) + lane / 2;
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

// The doubled values of a chunk, times 2^kCodeScaleBits, by plane.
HWY_INLINE void decode_chunk(const Mxfp4Tables& tables, const uint8_t* packed, V16* planes) {
  const D16 d16;
#if K3_HAS_AVX512
  const auto words = hn::BitCast(hn::RebindToUnsigned<D16>(), hn::LoadU(DU8(), packed));
  const auto look_up = [&tables](auto index) {
    return V16{_mm512_permutexvar_epi16(index.raw, tables.values.raw)};
  };
  (void)d16;
  planes[0] = look_up(words);
  planes[1] = look_up(hn::ShiftRight<4>(words));
  planes[2] = look_up(hn::ShiftRight<8>(words));
  planes[3] = look_up(hn::ShiftRight<12>(words));
#else
  const VU8 bytes = hn::LoadU(DU8(), packed);
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

HWY_INLINE V32 multiply_chunk(const V16* planes, const int16_t* x) {
  const D16 d16;
  V32 sum = hn::Zero(D32());
  for (size_t k = 0; k < kPlanes; ++k) {
    sum = multiply_add(planes[k], hn::LoadU(d16, x + k * (kBytes / 2)), sum);
  }
  return sum;
}

// The groups' sums of a pair of chunks, each in a 64-bit lane: lane 2 j has group j of the first
// chunk, lane 2 j + 1 of the second.
HWY_INLINE V64 fold_groups(V32 first, V32 second) {
  const D32 d32;
  const D64 d64;
  const V64 a = hn::BitCast(d64, first);
  const V64 b = hn::BitCast(d64, second);
  V32 sum = hn::Add(hn::BitCast(d32, hn::InterleaveLower(d64, a, b)),
                    hn::BitCast(d32, hn::InterleaveUpper(d64, a, b)));
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
  V16 first[kPlanes];
  V16 second[kPlanes];
  decode_chunk(tables, codes, first);
  decode_chunk(tables, codes + kBytes, second);
  const V64 shift = load_shifts(tables, scales, least_exponent);
  for (size_t t = 0; t < kTile; ++t) {
    const int16_t* at = x[t] + offset;
    const V64 sums =
        fold_groups(multiply_chunk(first, at), multiply_chunk(second, at + kChunkInputs));
    totals[t] = hn::Add(totals[t], hn::Shl(sums, shift));
  }
}

// Adds the inputs [begin, end) of one row to totals, for kTile arranged vectors. `begin` is a
// multiple of kPairInputs.
template <size_t kTile>
void add_mxfp4_row(const MatrixView& weights, int64_t row, int64_t begin, int64_t end,
                   const int16_t* const* x, int64_t* totals) {
  const Mxfp4Tables tables = load_mxfp4_tables();
  const VU8 least = hn::Set(DU8(), static_cast<uint8_t>(weights.least_exponent));
  const auto* codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * weights.row_stride_bytes) + begin / 2;
  const uint8_t* scales = weights.scales + row * weights.scales_per_row + begin / kMxfp4GroupInputs;
  V64 sums[kTile];
  for (size_t t = 0; t < kTile; ++t) sums[t] = hn::Zero(D64());
  for (; begin + kPairInputs <= end; begin += kPairInputs) {
    for (size_t line = 0; line < 2 * kBytes; line += 64) prefetch_ahead(codes + line);
    add_mxfp4_pair<kTile>(tables, codes, scales, least, x, begin, sums);
    codes += 2 * kBytes;
    scales += kPairGroups;
  }
  if (begin < end) {  // in memory of their own: what lies behind them belongs to somebody else
    alignas(64) uint8_t last_codes[2 * kBytes] = {};
    uint8_t last_scales[kPairGroups] = {};
    std::memcpy(last_codes, codes, static_cast<size_t>((end - begin) / 2));
    std::memcpy(last_scales, scales, static_cast<size_t>((end - begin) / kMxfp4GroupInputs));
    add_mxfp4_pair<kTile>(tables, last_codes, last_scales, least, x, begin, sums);
  }
  hwy::Prefetch(scales + 256);
  for (size_t t = 0; t < kTile; ++t) {  // unsigned, for a damaged pack's sums may wrap
    totals[t] = static_cast<int64_t>(static_cast<uint64_t>(totals[t]) +
                                     static_cast<uint64_t>(sum_of_lanes(sums[t])));
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_MXFP4_ROWS_INL_H_
