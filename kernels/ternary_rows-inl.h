// Rows of ternary and ternary2 against activation codes.
//
// Everything inside a block of 160 inputs is bytes. A byte of trits is a fraction of 256: it holds
// a digit 0, 1 or 2 on top as it lies below, above or above twice a third, and three times it, cut
// to a byte, is the fraction of the digits below. So two comparisons and two additions make a line
// of 32 digits, where 16-bit lanes would need two multiplications for half as many.
//
// A code q of activations is split into bytes, 256 h + l, each multiplied on its own. Digits are
// one too large (ternary2's four), which the block's sum of q, known before, takes back:
//   sum of multiplier * (256 sum d h + sum d l)  -  offset * sum of multiplier * sum q
// A block's sum of d h fits 16 bits (10 products of at most 8 * 128 a lane, or 20 with VNNI's
// sums of four), so one multiplication by the multiplier brings it to 32 bits, where 128 blocks
// have room: 40 * 8 * 128 * 255 * 128 < 2^31 even if one lane took a block's sums.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "schema/formats/ternary.h"
#include "schema/layout.h"
#include "schema/matrix_view.h"

#if defined(K3_KERNELS_TERNARY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_KERNELS_TERNARY_ROWS_INL_H_
#undef K3_KERNELS_TERNARY_ROWS_INL_H_
#else
#define K3_KERNELS_TERNARY_ROWS_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

// An arranged vector, step by step: a step is as many blocks as a vector of bytes spans (2 for
// AVX-512, else 1), and has for each of five lines the blocks' 32 high bytes, then their low bytes.
// Behind the steps lie the blocks' sums as int32.
constexpr int64_t kStepBlocks = kBytes == 64 ? 2 : 1;
constexpr int64_t kLineBytes = kTernaryBlockBytes * kStepBlocks;
constexpr int64_t kStepBytes = 2 * kTritsPerByte * kLineBytes;
constexpr int64_t kRoomyBlocks = 128;

inline int64_t ternary_steps(int64_t cols) {
  return divide_up(divide_up(cols, kBlockInputs), kStepBlocks);
}
inline int64_t arranged_ternary_bytes(int64_t cols) {
  return ternary_steps(cols) * (kStepBytes + kStepBlocks * 4);
}

// `codes` is padded with zeros to whole steps.
inline void arrange_for_ternary(const int16_t* codes, int64_t cols, int8_t* arranged) {
  const int64_t steps = ternary_steps(cols);
  auto* sums = reinterpret_cast<int32_t*>(arranged + steps * kStepBytes);
  for (int64_t block = 0; block < steps * kStepBlocks; ++block) {
    const int16_t* from = codes + block * kBlockInputs;
    int8_t* to =
        arranged + block / kStepBlocks * kStepBytes + block % kStepBlocks * kTernaryBlockBytes;
    int32_t sum = 0;
    for (int64_t line = 0; line < kTritsPerByte; ++line) {
      for (int64_t i = 0; i < kTernaryBlockBytes; ++i) {
        const int q = from[line * kTernaryBlockBytes + i];
        to[line * 2 * kLineBytes + i] = static_cast<int8_t>((q + 128) >> 8);
        to[line * 2 * kLineBytes + kLineBytes + i] = static_cast<int8_t>(q);
        sum += q;
      }
    }
    sums[block] = sum;
  }
}

// The fractions of a vector of bytes, shifted by -128 into the signed bytes that most targets
// compare; tripling keeps the shift, for 3 * 128 = 128 modulo 256.
class TritBytes {
 public:
  explicit TritBytes(const uint8_t* bytes)
      : rest_(hn::BitCast(D8(), hn::Xor(hn::LoadU(DU8(), bytes), hn::Set(DU8(), 0x80)))) {}

#if K3_HAS_AVX512
  static VU8 digits(V8 digits) {
    return hn::BitCast(DU8(), digits);
  }
  V8 next() {
    const auto at_least_one = hn::Gt(rest_, hn::Set(D8(), -43));
    const auto two = hn::Gt(rest_, hn::Set(D8(), 42));
    const V8 one = hn::IfThenElseZero(at_least_one, hn::Set(D8(), 1));
    return triple(hn::IfThenElse(two, hn::Set(D8(), 2), one));
  }
#else  // a comparison gives -1
  static VU8 digits(V8 digits) {
    return hn::BitCast(DU8(), hn::Abs(digits));
  }
  V8 next() {
    const V8 at_least_one = hn::VecFromMask(D8(), hn::Gt(rest_, hn::Set(D8(), -43)));
    const V8 two = hn::VecFromMask(D8(), hn::Gt(rest_, hn::Set(D8(), 42)));
    return triple(hn::Add(at_least_one, two));
  }
#endif

 private:
  V8 triple(V8 digits) {
    rest_ = hn::Add(rest_, hn::Add(rest_, rest_));
    return digits;
  }

  V8 rest_;
};

struct TernaryLines {
  static constexpr int kOffset = 1;  // of a digit over its code
  TritBytes trits;

  TernaryLines(const uint8_t* first, const uint8_t* /*second*/) : trits(first) {}
  VU8 next() { return TritBytes::digits(trits.next()); }
};

struct Ternary2Lines {
  static constexpr int kOffset = 4;
  TritBytes first;
  TritBytes second;

  Ternary2Lines(const uint8_t* first_bytes, const uint8_t* second_bytes)
      : first(first_bytes), second(second_bytes) {}
  VU8 next() {
    const V8 upper = first.next();
    return TritBytes::digits(hn::Add(hn::Add(upper, hn::Add(upper, upper)), second.next()));
  }
};

// Adds one step of a row to totals: 32-bit sums of high and of low bytes.
template <class Lines, size_t kTile>
HWY_INLINE void add_ternary_step(const uint8_t* first, const uint8_t* second, V16 factors,
                                 const int8_t* const* x, int64_t offset, V32* high, V32* low) {
  V16 high_sums[kTile];
  V16 low_sums[kTile];
  for (size_t t = 0; t < kTile; ++t) high_sums[t] = low_sums[t] = hn::Zero(D16());
  for (int64_t begin = 0; begin < kLineBytes; begin += static_cast<int64_t>(kBytes)) {
    Lines lines(first + begin, second + begin);
    for (int64_t line = 0; line < kTritsPerByte; ++line) {
      const VU8 digits = lines.next();
      for (size_t t = 0; t < kTile; ++t) {
        const int8_t* at = x[t] + offset + line * 2 * kLineBytes + begin;
        high_sums[t] = add_byte_products(digits, hn::LoadU(D8(), at), high_sums[t]);
        low_sums[t] = add_byte_products(digits, hn::LoadU(D8(), at + kLineBytes), low_sums[t]);
      }
    }
  }
  for (size_t t = 0; t < kTile; ++t) {
    high[t] = multiply_add(high_sums[t], factors, high[t]);
    low[t] = multiply_add(low_sums[t], factors, low[t]);
  }
}

// The multipliers of a step's blocks, each over its part of a vector.
HWY_INLINE V16 step_factors(const uint8_t* multipliers, bool is_half) {
#if K3_HAS_AVX512
  const hn::Half<D16> half;
  const auto upper = is_half ? hn::Zero(half) : spread_factor(half, multipliers[1]);
  return hn::Combine(D16(), upper, spread_factor(half, multipliers[0]));
#else
  (void)is_half;
  return spread_factor(D16(), multipliers[0]);
#endif
}

// One row against kTile vectors, arranged as above.
template <size_t kTile, class Lines>
void sum_ternary_row(const MatrixView& weights, int64_t row, const int8_t* const* x, double* sums) {
  const auto* first =
      reinterpret_cast<const uint8_t*>(weights.codes + row * weights.row_stride_bytes);
  const auto* second =
      weights.second_codes == nullptr
          ? first
          : reinterpret_cast<const uint8_t*>(weights.second_codes + row * weights.row_stride_bytes);
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
  const int64_t blocks = weights.scales_per_row;
  const int64_t sums_offset = ternary_steps(weights.cols) * kStepBytes;
  int64_t totals[kTile] = {};
  for (int64_t begin = 0; begin < blocks; begin += kRoomyBlocks) {
    const int64_t end = begin + kRoomyBlocks < blocks ? begin + kRoomyBlocks : blocks;
    V32 high[kTile];
    V32 low[kTile];
    for (size_t t = 0; t < kTile; ++t) high[t] = low[t] = hn::Zero(D32());
    int64_t block = begin;
    for (; block + kStepBlocks <= end; block += kStepBlocks) {
      const int64_t at = block * kTernaryBlockBytes;
      add_ternary_step<Lines, kTile>(first + at, second + at,
                                     step_factors(multipliers + block, false), x,
                                     block / kStepBlocks * kStepBytes, high, low);
    }
    if (block < end) {  // half a step: the bytes behind it belong to somebody else
      alignas(64) uint8_t rest[2][kLineBytes] = {};
      std::memcpy(rest[0], first + block * kTernaryBlockBytes, kTernaryBlockBytes);
      std::memcpy(rest[1], second + block * kTernaryBlockBytes, kTernaryBlockBytes);
      add_ternary_step<Lines, kTile>(rest[0], rest[1], step_factors(multipliers + block, true), x,
                                     block / kStepBlocks * kStepBytes, high, low);
    }
    for (size_t t = 0; t < kTile; ++t) {
      totals[t] += 256 * sum_of_lanes(high[t]) + sum_of_lanes(low[t]);
    }
  }
  for (size_t t = 0; t < kTile; ++t) {
    const auto* block_sums = reinterpret_cast<const int32_t*>(x[t] + sums_offset);
    int64_t taken_back = 0;
    for (int64_t block = 0; block < blocks; ++block) {
      taken_back += int64_t{block_sums[block]} * multipliers[block];
    }
    sums[t] = static_cast<double>(totals[t] - Lines::kOffset * taken_back);
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_TERNARY_ROWS_INL_H_
