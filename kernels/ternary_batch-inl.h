// Rows of ternary and ternary2 against many vectors of codes.
//
// A stretch of a few rows is decoded once, to trit times multiplier, which fits 16 bits (4 * 255 at
// most), and meets all vectors. Then there is nothing to do at the end of a block, and four rows
// times four vectors of sums stay in registers: two loads for every four multiplications.
//
// A pair of products is below 2 * 1020 * 32639 < 2^26, for ternary 2^24; that many of them fit 32
// bits as kFlushInputs lets a lane take.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "schema/formats/ternary.h"
#include "schema/layout.h"
#include "schema/matrix_view.h"

#if defined(K3_KERNELS_TERNARY_BATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_KERNELS_TERNARY_BATCH_INL_H_
#undef K3_KERNELS_TERNARY_BATCH_INL_H_
#else
#define K3_KERNELS_TERNARY_BATCH_INL_H_
#endif

#include "kernels/lanes-inl.h"
#include "kernels/ternary_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

constexpr int64_t kDecodedInputs = 960;  // a stretch: with its vectors, half the nearest cache
constexpr int64_t kDecodedBlocks = kDecodedInputs / kBlockInputs;
static_assert(kDecodedBlocks % kStepBlocks == 0);
constexpr size_t kDecodedRows = K3_HAS_AVX512 || HWY_TARGET == K3_NEON ? 4 : 2;
constexpr int64_t kBatchVectors = 64;

template <class Lines>
constexpr int64_t kFlushInputs =  // so many vectors, and no more than there are
    Lines::kPlanes == 1 ? kDecodedInputs : 30 * static_cast<int64_t>(kBytes / 2);
static_assert(kDecodedInputs <= 120 * static_cast<int64_t>(kBytes / 2));

struct DecodedRows {
  alignas(64) int16_t values[kDecodedRows][kDecodedInputs];
};

// The lanes of the sums of one row and vector.
struct BatchSum {
  alignas(64) int64_t lanes[hn::MaxLanes(D64())];
};

// One step of a row, to values that start with the step's first block.
template <class Lines>
HWY_INLINE void decode_step(const uint8_t* first, const uint8_t* second, uint8_t multiplier,
                            uint8_t second_multiplier, int16_t* values) {
  const D16 d16;
  const hn::Half<DU8> half;
  const V16 offset = hn::Set(d16, Lines::kOffset);
  const auto scaled = [&](auto digits, uint8_t factor) {
    return hn::Mul(hn::Sub(hn::PromoteTo(d16, digits), offset), hn::Set(d16, factor));
  };
  constexpr auto kHalf = static_cast<int64_t>(kBytes / 2);
  // The upper half of a vector is the second block, or the same line's next inputs.
  constexpr int64_t kUpper = kStepBlocks == 2 ? kBlockInputs : kHalf;
  for (int64_t begin = 0; begin < kLineBytes; begin += static_cast<int64_t>(kBytes)) {
    V8 first_left = load_fractions(first + begin);
    V8 second_left = load_fractions(second + begin);
    for (int64_t line = 0; line < kTritsPerByte; ++line) {
      const VU8 digits = Lines::next(first_left, second_left);
      int16_t* to = values + line * kTernaryBlockBytes + begin;
      hn::StoreU(scaled(hn::LowerHalf(half, digits), multiplier), d16, to);
      hn::StoreU(scaled(hn::UpperHalf(half, digits), second_multiplier), d16, to + kUpper);
    }
  }
}

// The blocks [begin, end) of one row; what a half step leaves over is zero.
template <class Lines>
void decode_row(const MatrixView& weights, int64_t row, int64_t begin, int64_t end,
                int16_t* values) {
  const int64_t at = row * weights.row_stride_bytes + begin * kTernaryBlockBytes;
  const auto* first = reinterpret_cast<const uint8_t*>(weights.codes + at);
  const uint8_t* second = first;
  if (Lines::kPlanes == 2) second = reinterpret_cast<const uint8_t*>(weights.second_codes + at);
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row + begin;
  const int64_t blocks = end - begin;
  int64_t block = 0;
  for (; block + kStepBlocks <= blocks; block += kStepBlocks) {
    prefetch_ahead(first);
    if (Lines::kPlanes == 2) prefetch_ahead(second);
    decode_step<Lines>(first, second, multipliers[block], multipliers[block + kStepBlocks - 1],
                       values + block * kBlockInputs);
    first += kLineBytes;
    second += kLineBytes;
  }
  if (block == blocks) return;
  alignas(64) uint8_t rest[2][kLineBytes] = {};
  std::memcpy(rest[0], first, kTernaryBlockBytes);
  std::memcpy(rest[1], second, kTernaryBlockBytes);
  decode_step<Lines>(rest[0], rest[1], multipliers[block], 0, values + block * kBlockInputs);
}

// Adds `inputs` inputs of kRows decoded rows times kTile vectors to sums[t * kRows + row].
template <size_t kRows, size_t kTile>
void add_decoded(const DecodedRows& decoded, int64_t inputs, int64_t flush_inputs,
                 const int16_t* const* x, int64_t offset, BatchSum* sums) {
  const D16 d16;
  const D32 d32;
  const D64 d64;
  for (int64_t begin = 0; begin < inputs; begin += flush_inputs) {
    const int64_t end = begin + flush_inputs < inputs ? begin + flush_inputs : inputs;
    V32 partial[kRows][kTile];
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t t = 0; t < kTile; ++t) partial[r][t] = hn::Zero(d32);
    }
    for (int64_t c = begin; c < end; c += static_cast<int64_t>(kBytes / 2)) {
      V16 w[kRows];
      for (size_t r = 0; r < kRows; ++r) w[r] = hn::LoadU(d16, decoded.values[r] + c);
      for (size_t t = 0; t < kTile; ++t) {
        const V16 codes = hn::LoadU(d16, x[t] + offset + c);
        for (size_t r = 0; r < kRows; ++r) partial[r][t] = multiply_add(w[r], codes, partial[r][t]);
      }
    }
    const V32 one = hn::Set(d32, 1);
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t t = 0; t < kTile; ++t) {
        const V32 odd = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, partial[r][t])));
        int64_t* lanes = sums[t * kRows + r].lanes;
        const V64 both = hn::Add(hn::MulEven(partial[r][t], one), hn::MulEven(odd, one));
        hn::Store(hn::Add(hn::Load(d64, lanes), both), d64, lanes);
      }
    }
  }
}

// kRows rows against `count` vectors, at most kBatchVectors: sums[t * stride + row].
template <class Lines, size_t kRows>
void sum_ternary_batch(const MatrixView& weights, int64_t row, const int16_t* const* x,
                       size_t count, int64_t stride, double* sums) {
  BatchSum totals[kBatchVectors * kRows];
  std::memset(totals, 0, count * kRows * sizeof(BatchSum));
  DecodedRows decoded;
  const int64_t blocks = weights.scales_per_row;
  for (int64_t begin = 0; begin < blocks; begin += kDecodedBlocks) {
    const int64_t end = begin + kDecodedBlocks < blocks ? begin + kDecodedBlocks : blocks;
    for (size_t r = 0; r < kRows; ++r) {
      decode_row<Lines>(weights, row + static_cast<int64_t>(r), begin, end, decoded.values[r]);
    }
    const int64_t inputs = align_up(end - begin, kStepBlocks) * kBlockInputs;
    const int64_t offset = begin * kBlockInputs;
    size_t t = 0;
    for (; t + 4 <= count; t += 4) {
      add_decoded<kRows, 4>(decoded, inputs, kFlushInputs<Lines>, x + t, offset,
                            totals + t * kRows);
    }
    for (; t < count; ++t) {
      add_decoded<kRows, 1>(decoded, inputs, kFlushInputs<Lines>, x + t, offset,
                            totals + t * kRows);
    }
  }
  for (size_t t = 0; t < count; ++t) {
    for (size_t r = 0; r < kRows; ++r) {
      const V64 lanes = hn::Load(D64(), totals[t * kRows + r].lanes);
      sums[static_cast<int64_t>(t) * stride + static_cast<int64_t>(r)] =
          static_cast<double>(sum_of_lanes(lanes));
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_TERNARY_BATCH_INL_H_
