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
constexpr int64_t kSegmentInputs = 2560;  // whose shifts are computed together
static_assert(kSegmentInputs % kPairInputs == 0);
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

// Adds the pairs [0, pairs) of codes to totals, for vectors that begin at x[t] + offset.
template <size_t kTile>
HWY_INLINE void add_mxfp4_pairs(const Mxfp4Tables& tables, const uint8_t* packed,
                                const uint8_t* shifts, int64_t pairs, const int16_t* const* x,
                                int64_t offset, V64* totals) {
  for (int64_t p = 0; p < pairs; ++p) {
    const uint8_t* codes = packed + p * static_cast<int64_t>(2 * kBytes);
    for (size_t line = 0; line < 2 * kBytes; line += 64) prefetch_ahead(codes + line);
    V16 first[kPlanes];
    V16 second[kPlanes];
    decode_chunk(tables, codes, first);
    decode_chunk(tables, codes + kBytes, second);
    const V8 pair_shifts =
        hn::LoadDup128(D8(), reinterpret_cast<const int8_t*>(shifts + p * kPairGroups));
    const V64 shift = hn::BitCast(D64(), hn::TableLookupBytesOr0(pair_shifts, tables.spread));
    for (size_t t = 0; t < kTile; ++t) {
      const int16_t* at = x[t] + offset + p * kPairInputs;
      const V64 sums =
          fold_groups(multiply_chunk(first, at), multiply_chunk(second, at + kChunkInputs));
      totals[t] = hn::Add(totals[t], hn::Shl(sums, shift));
    }
  }
}

// Adds the inputs [begin, end) of one row to totals, for kTile arranged vectors. `begin` is a
// multiple of kSegmentInputs.
template <size_t kTile>
void add_mxfp4_row(const MatrixView& weights, int64_t row, int64_t begin, int64_t end,
                   const int16_t* const* x, int64_t* totals) {
  const Mxfp4Tables tables = load_mxfp4_tables();
  const auto* codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * weights.row_stride_bytes);
  const uint8_t* scales = weights.scales + row * weights.scales_per_row;
  constexpr int64_t kSegmentGroups = kSegmentInputs / kMxfp4GroupInputs;
  alignas(16) uint8_t shifts[kSegmentGroups + 16];
  V64 sums[kTile];
  for (size_t t = 0; t < kTile; ++t) sums[t] = hn::Zero(D64());
  for (; begin < end; begin += kSegmentInputs) {
    const int64_t inputs = end - begin < kSegmentInputs ? end - begin : kSegmentInputs;
    const uint8_t* segment_scales = scales + begin / kMxfp4GroupInputs;
    hwy::Prefetch(segment_scales + 256);
    for (int64_t g = 0; g < inputs / kMxfp4GroupInputs; ++g) {
      shifts[g] = static_cast<uint8_t>(mxfp4_shift(segment_scales[g], weights.least_exponent));
    }
    const int64_t pairs = inputs / kPairInputs;
    add_mxfp4_pairs<kTile>(tables, codes + begin / 2, shifts, pairs, x, begin, sums);
    const int64_t done = pairs * kPairInputs;
    if (done == inputs) continue;
    // The end of the row, in a pair of its own: codes behind it belong to somebody else.
    alignas(64) uint8_t rest[2 * kBytes] = {};
    std::memcpy(rest, codes + (begin + done) / 2, static_cast<size_t>((inputs - done) / 2));
    for (int64_t g = inputs / kMxfp4GroupInputs; g < (done + kPairInputs) / kMxfp4GroupInputs;
         ++g) {
      shifts[g] = 0;
    }
    add_mxfp4_pairs<kTile>(tables, rest, shifts + done / kMxfp4GroupInputs, 1, x, begin + done,
                           sums);
  }
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
