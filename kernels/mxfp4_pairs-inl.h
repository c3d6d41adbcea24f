// Pairs of chunks of mxfp4 codes, and the activations that they are multiplied with.
//
// A chunk is one vector of codes; two chunks of a row, a pair, are taken together. Their halves of
// 64 bits are interleaved before anything else, so that each 64-bit lane holds half of a group of
// 32 inputs and no step before the shift leaves a lane: what a pair adds up is then one vector, and
// its eight groups are shifted at once.
//
// With VNNI a nibble is looked up as a byte, code + 12, which is not negative, and multiplied with
// the two bytes of an activation, q = 256 h + l, apart; 12 times the activations that a lane takes
// are taken off where its sum starts. Other AVX-512 looks nibbles up as words, which come out of a
// vector of codes four to a 16-bit word; the rest as bytes, which become words 256 times too large
// by staying in the upper half; a group's sum stays below 2^31 even so. Activations lie in planes
// that match, interleaved alike.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/matmul.h"
#include "kernels/simd_targets.h"

#if defined(K3_KERNELS_MXFP4_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_KERNELS_MXFP4_PAIRS_INL_H_
#undef K3_KERNELS_MXFP4_PAIRS_INL_H_
#else
#define K3_KERNELS_MXFP4_PAIRS_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

constexpr int64_t kChunkInputs = 2 * static_cast<int64_t>(kBytes);
constexpr int64_t kPairInputs = 2 * kChunkInputs;
constexpr int64_t kPairGroups = kPairInputs / kMxfp4GroupInputs;
constexpr int kCodeScaleBits = K3_HAS_AVX512 ? 0 : 8;

// What an arranged pair takes, in the size of a code: with VNNI sums to start from lie behind it.
constexpr int64_t kPairCodes =
    kPairInputs + (K3_HAS_VNNI ? static_cast<int64_t>(kBytes) / 2 : int64_t{0});

// Codes that an arranged vector takes.
inline int64_t arranged_mxfp4_codes(int64_t cols) {
  return divide_up(cols, kPairInputs) * kPairCodes;
}

// Where multiply_add takes both products of a lane from neighbouring words, halves of 64 bits are
// what stays together; where from the two halves of 128 bits, quarters are.
#if HWY_TARGET == K3_NEON
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

#if K3_HAS_VNNI
constexpr size_t kPlanes = 2;  // of a chunk: the inputs with even places, and with odd ones
using Plane = V8;
constexpr uint8_t kCodeOffset = 12;

HWY_INLINE V32 multiply_add_bytes(VU8 a, V8 b, V32 sum) {
  return V32{_mm512_dpbusd_epi32(sum.raw, a.raw, b.raw)};
}

// A chunk's activations with even places, as bytes, and those with odd ones.
HWY_INLINE void load_chunk_bytes(const int16_t* codes, V8* low, V8* high) {
  const D16 d16;
  const hn::Rebind<uint8_t, D16> half;
  const hn::RebindToUnsigned<D16> du16;
  V16 even[2];
  V16 odd[2];
  hn::LoadInterleaved2(d16, codes, even[0], odd[0]);
  hn::LoadInterleaved2(d16, codes + kBytes, even[1], odd[1]);
  const auto pack = [&](V16 first, V16 second) {
    return hn::BitCast(D8(), hn::Combine(DU8(), hn::TruncateTo(half, hn::BitCast(du16, second)),
                                         hn::TruncateTo(half, hn::BitCast(du16, first))));
  };
  // q = 256 h + l with l in [-128, 127]; h is too, for |q| <= 32639.
  const auto upper = [&](V16 q) { return hn::ShiftRight<8>(hn::Add(q, hn::Set(d16, 128))); };
  low[0] = pack(even[0], even[1]);
  low[1] = pack(odd[0], odd[1]);
  high[0] = pack(upper(even[0]), upper(even[1]));
  high[1] = pack(upper(odd[0]), upper(odd[1]));
}

// An arranged pair: the low bytes of four planes, their high bytes, and the sums to start from.
HWY_INLINE void arrange_pair(const int16_t* codes, int16_t* arranged) {
  V8 low[2][kPlanes];
  V8 high[2][kPlanes];
  for (size_t chunk = 0; chunk < 2; ++chunk) {
    load_chunk_bytes(codes + chunk * static_cast<size_t>(kChunkInputs), low[chunk], high[chunk]);
  }
  auto* bytes = reinterpret_cast<int8_t*>(arranged);
  const VU8 offsets = hn::Set(DU8(), kCodeOffset);
  V32 low_sum = hn::Zero(D32());
  V32 high_sum = hn::Zero(D32());
  for (size_t k = 0; k < kPlanes; ++k) {
    V8 lower;
    V8 upper;
    interleave_chunks(low[0][k], low[1][k], lower, upper);
    hn::StoreU(lower, D8(), bytes + k * kBytes);
    hn::StoreU(upper, D8(), bytes + (kPlanes + k) * kBytes);
    low_sum = multiply_add_bytes(offsets, upper, multiply_add_bytes(offsets, lower, low_sum));
    interleave_chunks(high[0][k], high[1][k], lower, upper);
    hn::StoreU(lower, D8(), bytes + (2 * kPlanes + k) * kBytes);
    hn::StoreU(upper, D8(), bytes + (3 * kPlanes + k) * kBytes);
    high_sum = multiply_add_bytes(offsets, upper, multiply_add_bytes(offsets, lower, high_sum));
  }
  const V32 sum = hn::Neg(hn::Add(hn::ShiftLeft<8>(high_sum), low_sum));
  hn::StoreU(hn::BitCast(D8(), sum), D8(), bytes + 4 * kPlanes * kBytes);
}
#else
constexpr size_t kPlanes = 4;  // of a chunk: the nibbles of a word
using Plane = V16;

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

#endif

inline void arrange_for_mxfp4(const int16_t* codes, int64_t cols, int16_t* arranged) {
  int64_t begin = 0;
  for (; begin + kPairInputs <= cols; begin += kPairInputs) {
    arrange_pair(codes + begin, arranged);
    arranged += kPairCodes;
  }
  if (begin == cols) return;
  int16_t rest[kPairInputs] = {};
  std::memcpy(rest, codes + begin, static_cast<size_t>(cols - begin) * sizeof(int16_t));
  arrange_pair(rest, arranged);
}

// Doubled codes as decode_mxfp4_doubled gives them, twice: bit 4 of an index is not looked at.
#define K3_DOUBLED_CODES 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
#if K3_HAS_AVX512 && !K3_HAS_VNNI
alignas(64) constexpr int16_t kDoubledCodes[32] = {K3_DOUBLED_CODES, K3_DOUBLED_CODES};
#else
alignas(16) constexpr int8_t kDoubledCodes[16] = {K3_DOUBLED_CODES};
#endif
#undef K3_DOUBLED_CODES

#if K3_HAS_AVX512 && !K3_HAS_VNNI
using CodeTable = V16;
#else
using CodeTable = V8;
#endif

HWY_INLINE CodeTable load_code_table() {
#if K3_HAS_VNNI
  return hn::Add(hn::LoadDup128(D8(), kDoubledCodes), hn::Set(D8(), kCodeOffset));
#elif K3_HAS_AVX512
  return hn::Load(D16(), kDoubledCodes);
#else
  return hn::LoadDup128(D8(), kDoubledCodes);
#endif
}

// The doubled values of a vector of codes by plane: plus kCodeOffset with VNNI, else times
// 2^kCodeScaleBits.
HWY_INLINE void decode_codes(CodeTable table, VU8 bytes, Plane* planes) {
#if K3_HAS_VNNI
  const auto words = hn::BitCast(hn::RebindToUnsigned<D16>(), bytes);
  const auto look_up = [&table](auto index) {
    return V8{_mm512_permutexvar_epi8(index.raw, table.raw)};
  };
  planes[0] = look_up(bytes);
  planes[1] = look_up(hn::ShiftRight<4>(words));
#elif K3_HAS_AVX512
  const auto words = hn::BitCast(hn::RebindToUnsigned<D16>(), bytes);
  const auto look_up = [&table](auto index) {
    return V16{_mm512_permutexvar_epi16(index.raw, table.raw)};
  };
  planes[0] = look_up(words);
  planes[1] = look_up(hn::ShiftRight<4>(words));
  planes[2] = look_up(hn::ShiftRight<8>(words));
  planes[3] = look_up(hn::ShiftRight<12>(words));
#else
  const D16 d16;
  const VU8 low = hn::And(bytes, hn::Set(DU8(), 15));
  const VU8 high = hn::ShiftRight<4>(bytes);
  const V16 even = hn::BitCast(d16, hn::TableLookupBytes(table, hn::BitCast(D8(), low)));
  const V16 odd = hn::BitCast(d16, hn::TableLookupBytes(table, hn::BitCast(D8(), high)));
  const V16 upper = hn::Set(d16, static_cast<int16_t>(0xff00));
  planes[0] = hn::ShiftLeft<8>(even);
  planes[1] = hn::ShiftLeft<8>(odd);
  planes[2] = hn::And(even, upper);
  planes[3] = hn::And(odd, upper);
#endif
}

// The products of kRows decoded pairs with an arranged one, added up within 32-bit lanes.
template <size_t kRows>
HWY_INLINE void multiply_pairs(const Plane (*planes)[2 * kPlanes], const int16_t* x, V32* sums) {
#if K3_HAS_VNNI
  const auto* bytes = reinterpret_cast<const int8_t*>(x);
  const V32 start = hn::BitCast(D32(), hn::LoadU(D8(), bytes + 4 * kPlanes * kBytes));
  V32 high[kRows];
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    sums[r] = start;
    high[r] = hn::Zero(D32());
  }
  K3_UNROLL
  for (size_t k = 0; k < 2 * kPlanes; ++k) {
    V8 low_bytes = hn::LoadU(D8(), bytes + k * kBytes);
    V8 high_bytes = hn::LoadU(D8(), bytes + (2 * kPlanes + k) * kBytes);
    if constexpr (kRows > 1) {  // else GCC loads them again for each row
      keep_in_register(low_bytes);
      keep_in_register(high_bytes);
    }
    K3_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const VU8 codes = hn::BitCast(DU8(), planes[r][k]);
      sums[r] = multiply_add_bytes(codes, low_bytes, sums[r]);
      high[r] = multiply_add_bytes(codes, high_bytes, high[r]);
    }
  }
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) sums[r] = hn::Add(sums[r], hn::ShiftLeft<8>(high[r]));
#else
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) sums[r] = hn::Zero(D32());
  K3_UNROLL
  for (size_t k = 0; k < 2 * kPlanes; ++k) {
    const V16 words = hn::LoadU(D16(), x + k * (kBytes / 2));
    K3_UNROLL
    for (size_t r = 0; r < kRows; ++r) sums[r] = multiply_add(planes[r][k], words, sums[r]);
  }
#endif
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_MXFP4_PAIRS_INL_H_
