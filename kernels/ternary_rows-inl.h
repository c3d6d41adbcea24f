// Rows of ternary and ternary2 against activation codes.
//
// Everything inside a block of 160 inputs is bytes. A byte of trits is a fraction of 256: it holds
// a digit 0, 1 or 2 on top as it lies below, above or above twice a third, and three times it, cut
// to a byte, is the fraction of the digits below. So two comparisons and two additions make a line
// of 32 digits, where 16-bit lanes would need two multiplications for half as many.
//
// A code q of activations is split into bytes, 256 h + l, each multiplied on its own. Digits are
// one too large (ternary2's four): a block's sums start from what that will add too much, which
// only depends on the activations. With its start such a sum fits 16 bits (10 products of at most
// 4 * 128 a lane, or 20 with VNNI's sums of four), so one multiplication by the multiplier brings
// it to 32 bits, where 128 blocks have room: 40 * 4 * 128 * 255 * 128 < 2^31.
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
// AVX-512, else 1). It has for each of five lines the blocks' 32 high bytes, then their low bytes;
// then what the sums of high and of low bytes start from, a vector each.
constexpr int64_t kStepBlocks = kBytes == 64 ? 2 : 1;
constexpr int64_t kLineBytes = kTernaryBlockBytes * kStepBlocks;
constexpr int64_t kStartsOffset = 2 * kTritsPerByte * kLineBytes;
constexpr int64_t kStepBytes = kStartsOffset + 2 * kLineBytes;
constexpr int64_t kRoomyBlocks = 128;

inline int64_t ternary_steps(int64_t cols) {
  return divide_up(divide_up(cols, kBlockInputs), kStepBlocks);
}
inline int64_t arranged_ternary_bytes(int64_t cols) {
  return ternary_steps(cols) * kStepBytes;
}

// `codes` is padded with zeros to whole steps; `offset` is how much digits are too large.
inline void arrange_for_ternary(const int16_t* codes, int64_t cols, uint8_t offset,
                                int8_t* arranged) {
  for (int64_t step = 0; step < ternary_steps(cols); ++step, arranged += kStepBytes) {
    for (int64_t block = 0; block < kStepBlocks; ++block, codes += kBlockInputs) {
      for (int64_t line = 0; line < kTritsPerByte; ++line) {
        int8_t* to = arranged + line * 2 * kLineBytes + block * kTernaryBlockBytes;
        for (int64_t i = 0; i < kTernaryBlockBytes; ++i) {
          const int q = codes[line * kTernaryBlockBytes + i];
          to[i] = static_cast<int8_t>((q + 128) >> 8);
          to[kLineBytes + i] = static_cast<int8_t>(q);
        }
      }
    }
    for (int64_t half = 0; half < 2; ++half) {
      V16 excess = hn::Zero(D16());
      for (int64_t at = half * kLineBytes; at < kStartsOffset; at += 2 * kLineBytes) {
        for (int64_t i = 0; i < kLineBytes; i += static_cast<int64_t>(kBytes)) {
          const V8 x = hn::LoadU(D8(), arranged + at + i);
          excess = add_byte_products(hn::Set(DU8(), offset), x, excess);
        }
      }
      hn::StoreU(hn::BitCast(D8(), negate_byte_products(excess)), D8(),
                 arranged + kStartsOffset + half * kLineBytes);
    }
  }
}

// The fractions of a vector of bytes, shifted by -128 into the signed bytes that most targets
// compare; tripling keeps the shift, for 3 * 128 = 128 modulo 256.
HWY_INLINE V8 load_fractions(const uint8_t* bytes) {
  return hn::BitCast(D8(), hn::Xor(hn::LoadU(DU8(), bytes), hn::Set(DU8(), 0x80)));
}

// Takes the top digits off. Where a comparison gives -1 they are negative, which the end of a sum
// of digits puts right: see to_digits.
HWY_INLINE V8 take_digits(V8& fractions) {
  const auto at_least_one = hn::Gt(fractions, hn::Set(D8(), -43));
  const auto two = hn::Gt(fractions, hn::Set(D8(), 42));
#if K3_HAS_AVX512
  const V8 digits =
      hn::IfThenElse(two, hn::Set(D8(), 2), hn::IfThenElseZero(at_least_one, hn::Set(D8(), 1)));
#else
  const V8 digits = hn::Add(hn::VecFromMask(D8(), at_least_one), hn::VecFromMask(D8(), two));
#endif
  fractions = hn::Add(fractions, hn::Add(fractions, fractions));
  return digits;
}

HWY_INLINE VU8 to_digits(V8 taken) {
#if K3_HAS_AVX512
  return hn::BitCast(DU8(), taken);
#else
  return hn::BitCast(DU8(), hn::Abs(taken));
#endif
}

// The next digits of a vector of bytes and of its second plane, for formats that have one.
struct TernaryLines {
  static constexpr int kPlanes = 1;
  static constexpr uint8_t kOffset = 1;  // of a digit over its code
  static HWY_INLINE VU8 next(V8& first, V8& /*second*/) { return to_digits(take_digits(first)); }
};

struct Ternary2Lines {
  static constexpr int kPlanes = 2;
  static constexpr uint8_t kOffset = 4;
  static HWY_INLINE VU8 next(V8& first, V8& second) {
    const V8 upper = take_digits(first);
    const V8 lower = take_digits(second);
    return to_digits(hn::Add(hn::Add(upper, hn::Add(upper, upper)), lower));
  }
};

// Adds one step of kRows rows to totals[row * kTile + t]: 32-bit sums of high and of low bytes. A
// batch is bound by loads of activations, so two rows share them.
template <class Lines, size_t kRows, size_t kTile>
HWY_INLINE void add_ternary_step(const uint8_t* const* first, const uint8_t* const* second,
                                 const V16* factors, const int8_t* const* x, int64_t offset,
                                 V32* high, V32* low) {
  V16 high_sums[kRows * kTile];
  V16 low_sums[kRows * kTile];
  for (size_t i = 0; i < kRows * kTile; ++i) {
    const auto* starts = reinterpret_cast<const int16_t*>(x[i % kTile] + offset + kStartsOffset);
    high_sums[i] = hn::LoadU(D16(), starts);
    low_sums[i] = hn::LoadU(D16(), starts + kLineBytes / 2);
  }
  for (int64_t begin = 0; begin < kLineBytes; begin += static_cast<int64_t>(kBytes)) {
    V8 first_left[kRows];
    V8 second_left[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      first_left[r] = load_fractions(first[r] + begin);
      second_left[r] = load_fractions(second[r] + begin);
    }
    for (int64_t line = 0; line < kTritsPerByte; ++line) {
      VU8 digits[kRows];
      for (size_t r = 0; r < kRows; ++r) digits[r] = Lines::next(first_left[r], second_left[r]);
      for (size_t t = 0; t < kTile; ++t) {
        const int8_t* at = x[t] + offset + line * 2 * kLineBytes + begin;
        const V8 upper = hn::LoadU(D8(), at);
        const V8 lower = hn::LoadU(D8(), at + kLineBytes);
        for (size_t r = 0; r < kRows; ++r) {
          const size_t i = r * kTile + t;
          high_sums[i] = add_byte_products(digits[r], upper, high_sums[i]);
          low_sums[i] = add_byte_products(digits[r], lower, low_sums[i]);
        }
      }
    }
  }
  for (size_t i = 0; i < kRows * kTile; ++i) {
    high[i] = multiply_add(high_sums[i], factors[i / kTile], high[i]);
    low[i] = multiply_add(low_sums[i], factors[i / kTile], low[i]);
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

// Adds the blocks [begin, end) of kRows rows to totals[row * kTile + t], for kTile arranged
// vectors. `begin` is even.
template <class Lines, size_t kRows, size_t kTile>
void add_ternary_rows(const MatrixView& weights, int64_t row, int64_t begin, int64_t end,
                      const int8_t* const* x, int64_t* totals) {
  const uint8_t* first[kRows];
  const uint8_t* second[kRows];
  const uint8_t* multipliers[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const int64_t at = (row + static_cast<int64_t>(r)) * weights.row_stride_bytes;
    first[r] = reinterpret_cast<const uint8_t*>(weights.codes + at) + begin * kTernaryBlockBytes;
    second[r] = first[r];
    if (Lines::kPlanes == 2) {
      second[r] =
          reinterpret_cast<const uint8_t*>(weights.second_codes + at) + begin * kTernaryBlockBytes;
    }
    multipliers[r] = weights.scales + (row + static_cast<int64_t>(r)) * weights.scales_per_row;
    hwy::Prefetch(multipliers[r] + begin + 256);
  }
  while (begin < end) {
    const int64_t stop = begin + kRoomyBlocks < end ? begin + kRoomyBlocks : end;
    V32 high[kRows * kTile];
    V32 low[kRows * kTile];
    for (size_t i = 0; i < kRows * kTile; ++i) high[i] = low[i] = hn::Zero(D32());
    V16 factors[kRows];
    for (; begin + kStepBlocks <= stop; begin += kStepBlocks) {
      for (size_t r = 0; r < kRows; ++r) {
        factors[r] = step_factors(multipliers[r] + begin, false);
        prefetch_ahead(first[r]);
        prefetch_near<kTile>(first[r]);
        if (Lines::kPlanes == 2) {
          prefetch_ahead(second[r]);
          prefetch_near<kTile>(second[r]);
        }
      }
      add_ternary_step<Lines, kRows, kTile>(first, second, factors, x,
                                            begin / kStepBlocks * kStepBytes, high, low);
      for (size_t r = 0; r < kRows; ++r) {
        first[r] += kLineBytes;
        second[r] += kLineBytes;
      }
    }
    if (begin < stop) {  // half a step: the bytes behind it belong to somebody else
      alignas(64) uint8_t rest[2 * kRows][kLineBytes] = {};
      const uint8_t* first_rest[kRows];
      const uint8_t* second_rest[kRows];
      for (size_t r = 0; r < kRows; ++r) {
        std::memcpy(rest[2 * r], first[r], kTernaryBlockBytes);
        std::memcpy(rest[2 * r + 1], second[r], kTernaryBlockBytes);
        first_rest[r] = rest[2 * r];
        second_rest[r] = rest[2 * r + 1];
        factors[r] = step_factors(multipliers[r] + begin, true);
      }
      add_ternary_step<Lines, kRows, kTile>(first_rest, second_rest, factors, x,
                                            begin / kStepBlocks * kStepBytes, high, low);
      begin = stop;
    }
    for (size_t i = 0; i < kRows * kTile; ++i) {
      totals[i] += 256 * sum_of_lanes(high[i]) + sum_of_lanes(low[i]);
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_TERNARY_ROWS_INL_H_
