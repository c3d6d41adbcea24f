// Rows of mxfp4 against activation codes.
//
// A chunk is one vector of codes; two chunks of a row, a pair, are taken together. Their halves of
// 64 bits are interleaved before anything else, so that each 64-bit lane holds half of a group of
// 32 inputs and no step before the shift leaves a lane: what a pair adds up is then one vector, and
// its eight groups are shifted at once. A row of few pairs costs as much to reduce as to multiply,
// so as many rows as a vector has 64-bit lanes are reduced together.
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
#if K3_HAS_AVX512 && !K3_HAS_VNNI
  V16 values;
#else
  V8 values;
#endif
  V8 spread;
};

HWY_INLINE Mxfp4Tables load_mxfp4_tables() {
#if K3_HAS_VNNI
  const V8 codes = hn::LoadDup128(D8(), kDoubledCodes);
  return {hn::Add(codes, hn::Set(D8(), kCodeOffset)), hn::Load(D8(), kShiftPlaces.places)};
#elif K3_HAS_AVX512
  return {hn::Load(D16(), kDoubledCodes), hn::Load(D8(), kShiftPlaces.places)};
#else
  return {hn::LoadDup128(D8(), kDoubledCodes), hn::Load(D8(), kShiftPlaces.places)};
#endif
}

// The doubled values of a vector of codes by plane: plus kCodeOffset with VNNI, else times
// 2^kCodeScaleBits.
HWY_INLINE void decode_codes(const Mxfp4Tables& tables, VU8 bytes, Plane* planes) {
#if K3_HAS_VNNI
  const auto words = hn::BitCast(hn::RebindToUnsigned<D16>(), bytes);
  const auto look_up = [&tables](auto index) {
    return V8{_mm512_permutexvar_epi8(index.raw, tables.values.raw)};
  };
  planes[0] = look_up(bytes);
  planes[1] = look_up(hn::ShiftRight<4>(words));
#elif K3_HAS_AVX512
  const auto words = hn::BitCast(hn::RebindToUnsigned<D16>(), bytes);
  const auto look_up = [&tables](auto index) {
    return V16{_mm512_permutexvar_epi16(index.raw, tables.values.raw)};
  };
  planes[0] = look_up(words);
  planes[1] = look_up(hn::ShiftRight<4>(words));
  planes[2] = look_up(hn::ShiftRight<8>(words));
  planes[3] = look_up(hn::ShiftRight<12>(words));
#else
  const D16 d16;
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
    const V8 low_bytes = hn::LoadU(D8(), bytes + k * kBytes);
    const V8 high_bytes = hn::LoadU(D8(), bytes + (2 * kPlanes + k) * kBytes);
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

// What a block of rows of one matrix shares.
struct Mxfp4Block {
  Mxfp4Tables tables;
  VU8 least_exponent;
  int64_t code_stride;
  int64_t scale_stride;
};

// Adds a pair of chunks of kRows rows to sums[row * kTile + t], for vectors whose arranged pair is
// at x[t] + offset.
template <size_t kRows, size_t kTile>
HWY_INLINE void add_mxfp4_pairs(const Mxfp4Block& block, const uint8_t* codes,
                                const uint8_t* scales, const int16_t* const* x, int64_t offset,
                                V64* sums) {
  Plane planes[kRows][2 * kPlanes];
  V64 shifts[kRows];
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    VU8 lower;
    VU8 upper;
    interleave_chunks(hn::LoadU(DU8(), codes), hn::LoadU(DU8(), codes + kBytes), lower, upper);
    decode_codes(block.tables, lower, planes[r]);
    decode_codes(block.tables, upper, planes[r] + kPlanes);
    shifts[r] = load_shifts(block.tables, scales, block.least_exponent);
    codes += block.code_stride;
    scales += block.scale_stride;
  }
  K3_UNROLL
  for (size_t t = 0; t < kTile; ++t) {
    V32 products[kRows];
    multiply_pairs<kRows>(planes, x[t] + offset, products);
    K3_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      V64& sum = sums[r * kTile + t];
      sum = hn::Add(sum, hn::Shl(fold_groups(products[r]), shifts[r]));
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
        prefetch_ahead(codes + static_cast<int64_t>(r) * block.code_stride + line, ahead);
      }
    }
    add_mxfp4_pairs<kRows, kTile>(block, codes, scales, x, offset, sums);
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
    Mxfp4Block last = block;
    last.code_stride = 2 * kBytes;
    last.scale_stride = kPairGroups;
    add_mxfp4_pairs<kRows, kTile>(last, last_codes[0], last_scales[0], x, end, sums);
  }
  K3_UNROLL
  for (size_t i = 0; i < kRows * kTile; ++i) to[i] = sums[i];
}

// Rows that share their loads of activations: as many as there are registers for.
template <size_t kTile>
constexpr size_t kMxfp4Rows = K3_HAS_AVX512&& kTile == 1 ? 2 : 1;

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
      .tables = load_mxfp4_tables(),
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
  for (int64_t r = 0; r < rows; r += kStep) {
    V64 sums[kReducedRows][kTile];
    const auto count = static_cast<size_t>(rows - r < kStep ? rows - r : kStep);
    size_t i = 0;
    for (; i + kRows <= count; i += kRows) {
      sum_mxfp4_rows<kRows, kTile>(block, codes, scales, pairs, rest, ahead, from, sums[i]);
      hwy::Prefetch(scales + 256);
      codes += static_cast<int64_t>(kRows) * block.code_stride;
      scales += static_cast<int64_t>(kRows) * block.scale_stride;
    }
    if (i < count) {
      sum_mxfp4_rows<1, kTile>(block, codes, scales, pairs, rest, ahead, from, sums[i]);
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
