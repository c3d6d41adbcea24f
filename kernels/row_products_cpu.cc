// One source for AVX-512, AVX2, 128-bit vectors (SSE4, NEON) and machines with none of them, chosen
// at run time. Every path gives the bits of the exact_ functions:
//   integers   sums of integers do not depend on how vectors split them.
//   floats     the 32 lanes of lane_sum.h lie in 4, 8 or 16 registers, lane l at the same place in
//              every step. Products are exact in double, so MulAdd may fuse (AVX2, AVX-512) or not
//              (SSE4).
// The machine without a vector unit runs the exact_ functions themselves.
//
// A loaded and decoded piece of a row is used for up to four input vectors at once: that keeps the
// decoding of a batch below its multiplications and still fits AVX2's 16 registers. Float rows need
// 32 lanes a vector, so there only AVX-512 has room for four. Arrays of registers need a vector
// size known when compiling, which rules SVE out; its machines run the NEON code.
#include "kernels/row_products_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/lane_sum.h"
#include "kernels/quantize_activations.h"
#include "kernels/routed_experts.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"
#include "schema/formats/ternary.h"
#include "schema/layout.h"

// Unlike loops that need std::fma, this code is worth a copy for SSE4, which also lets an x86
// machine test the 128-bit paths that NEON runs.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_products_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {  // so that calls are inlined in position-independent code, too

#if HWY_TARGET == HWY_SCALAR

ActivationStep quantize_vector(const float* x, int64_t n, int16_t* codes) {
  return exact_quantize(x, n, codes);
}

void sum_rows(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const ActivationVector* const* x, size_t count, double* sums) {
  for (size_t i = 0; i < count; ++i) {
    for (int64_t r = row_begin; r < row_end; ++r) *sums++ = exact_row_sum(weights, r, *x[i]);
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

// At most 32 codes a vector, so that a group of 32 and a block of 160 are whole vectors.
using D16 = hn::CappedTag<int16_t, 32>;
using D32 = hn::RepartitionToWide<D16>;
using D64 = hn::RepartitionToWide<D32>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;
constexpr size_t kCodes = hn::MaxLanes(D16());
constexpr size_t kGroupVectors = kMxfp4GroupInputs / kCodes;

// Lanes of doubles: 32 of them in kLaneVectors registers.
using DF64 = hn::CappedTag<double, 8>;
using VF64 = hn::Vec<DF64>;
constexpr size_t kDoubles = hn::MaxLanes(DF64());
constexpr size_t kLaneVectors = kLanes / kDoubles;

constexpr size_t kIntegerTile = 4;
constexpr size_t kFloatTile = kDoubles == 8 ? 4 : 1;

ActivationStep quantize_vector(const float* x, int64_t n, int16_t* codes) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<int16_t, decltype(df)> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t vectored = n - n % lanes;

  // Without their sign the bits of floats are ordered as the floats, infinity and NaN on top.
  const auto magnitude_mask = hn::Set(du, 0x7fffffffU);
  auto max_bits = hn::Zero(du);
  for (int64_t i = 0; i < vectored; i += lanes) {
    const auto bits = hn::BitCast(du, hn::LoadU(df, x + i));
    max_bits = hn::Max(max_bits, hn::And(bits, magnitude_mask));
  }
  float rest[hn::MaxLanes(df)] = {};
  for (int64_t i = vectored; i < n; ++i) rest[i - vectored] = x[i];
  const auto rest_bits = hn::BitCast(du, hn::LoadU(df, rest));
  max_bits = hn::MaxOfLanes(du, hn::Max(max_bits, hn::And(rest_bits, magnitude_mask)));
  ActivationStep step;
  step.finite = hn::GetLane(max_bits) < 0x7f800000U;
  if (!step.finite) {
    for (int64_t i = 0; i < n; ++i) codes[i] = 0;
    return step;
  }
  step.exponent = activation_exponent(hn::GetLane(hn::BitCast(df, max_bits)));

  // 2^-e may not be a float, so it is applied in two halves. Both are exact, but where a value
  // becomes subnormal on its way down, and that one rounds to code 0 anyway.
  const int half = -step.exponent / 2;
  const auto first = hn::Set(df, static_cast<float>(power_of_two(half)));
  const auto second = hn::Set(df, static_cast<float>(power_of_two(-step.exponent - half)));
  for (int64_t i = 0; i < vectored; i += lanes) {
    const auto scaled = hn::Mul(hn::Mul(hn::LoadU(df, x + i), first), second);
    hn::StoreU(hn::DemoteTo(d16, hn::NearestInt(scaled)), d16, codes + i);
  }
  const double inverse_step = power_of_two(-step.exponent);
  for (int64_t i = vectored; i < n; ++i) codes[i] = exact_activation_code(x[i], inverse_step);
  return step;
}

double reduce_integers(V64 sum) {
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(D64(), sum)));
}

// A block of blocks160 is five lines of 32 inputs. Each format below gives one vector of codes from
// every line in turn, the lines' vectors at the same offset: the order in which trits come out of a
// vector of bytes.
constexpr size_t kLines = 5;
constexpr size_t kLineInputs = 32;
constexpr size_t kLineVectors = kLineInputs / kCodes;
static_assert(kLines * kLineInputs == kBlockInputs && kLines == kTritsPerByte);

class Int8Lines {
 public:
  Int8Lines(const MatrixView& weights, int64_t row, int64_t block, size_t offset)
      : next_(reinterpret_cast<const int8_t*>(weights.codes + row * weights.row_stride_bytes) +
              static_cast<size_t>(block * kBlockInputs) + offset) {}

  V16 next() {
    const V16 codes = hn::PromoteTo(D16(), hn::LoadU(hn::Rebind<int8_t, D16>(), next_));
    next_ += kLineInputs;
    return codes;
  }

 private:
  const int8_t* next_;
};

// A byte of trits as a fraction of 65536: of three times that, the upper half is a trit + 1, the
// lower half the fraction of the trits below.
class TritDigits {
 public:
  TritDigits(const std::byte* plane, const MatrixView& weights, int64_t row, int64_t block,
             size_t offset) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(plane + row * weights.row_stride_bytes) +
                        static_cast<size_t>(block * kTernaryBlockBytes) + offset;
    const auto wide = hn::PromoteTo(DU16(), hn::LoadU(hn::Rebind<uint8_t, DU16>(), bytes));
    rest_ = hn::ShiftLeft<8>(wide);
  }

  // 0, 1 or 2.
  V16 next() {
    const auto three = hn::Set(DU16(), 3);
    const auto digit = hn::MulHigh(rest_, three);
    rest_ = hn::Mul(rest_, three);
    return hn::BitCast(D16(), digit);
  }

 private:
  using DU16 = hn::RebindToUnsigned<D16>;
  hn::Vec<DU16> rest_;
};

class TernaryLines {
 public:
  TernaryLines(const MatrixView& weights, int64_t row, int64_t block, size_t offset)
      : digits_(weights.codes, weights, row, block, offset) {}

  V16 next() { return hn::Sub(digits_.next(), hn::Set(D16(), 1)); }

 private:
  TritDigits digits_;
};

class Ternary2Lines {
 public:
  Ternary2Lines(const MatrixView& weights, int64_t row, int64_t block, size_t offset)
      : first_(weights.codes, weights, row, block, offset),
        second_(weights.second_codes, weights, row, block, offset) {}

  V16 next() {
    const V16 digits = hn::Add(hn::Mul(first_.next(), hn::Set(D16(), 3)), second_.next());
    return hn::Sub(digits, hn::Set(D16(), 4));
  }

 private:
  TritDigits first_;
  TritDigits second_;
};

// One row of blocks160 against kTile vectors of codes.
template <size_t kTile, class Lines>
void sum_block_row(const MatrixView& weights, int64_t row, const int16_t* const* codes,
                   double* sums) {
  const D16 d16;
  const D32 d32;
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
  V64 totals[kTile];
  for (size_t t = 0; t < kTile; ++t) totals[t] = hn::Zero(D64());
  for (int64_t block = 0; block < weights.scales_per_row; ++block) {
    V32 even[kTile];  // two halves of a block's sum: some targets split pairs over both
    V32 odd[kTile];
    for (size_t t = 0; t < kTile; ++t) even[t] = odd[t] = hn::Zero(d32);
    for (size_t v = 0; v < kLineVectors; ++v) {
      Lines lines(weights, row, block, v * kCodes);
      for (size_t line = 0; line < kLines; ++line) {
        const size_t c =
            static_cast<size_t>(block * kBlockInputs) + line * kLineInputs + v * kCodes;
        const V16 w = lines.next();
        for (size_t t = 0; t < kTile; ++t) {
          even[t] =
              hn::ReorderWidenMulAccumulate(d32, w, hn::Load(d16, codes[t] + c), even[t], odd[t]);
        }
      }
    }
    const V32 multiplier = hn::Set(d32, multipliers[block]);
    for (size_t t = 0; t < kTile; ++t) {
      const V32 sum = hn::Add(even[t], odd[t]);
      const V32 upper = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(D64(), sum)));
      totals[t] =
          hn::Add(totals[t], hn::Add(hn::MulEven(sum, multiplier), hn::MulEven(upper, multiplier)));
    }
  }
  for (size_t t = 0; t < kTile; ++t) sums[t] = reduce_integers(totals[t]);
}

// The doubled values of a group's 32 codes, in input order.
template <class Values>
void decode_group(const uint8_t* packed, Values values, V16* out) {
  const hn::FixedTag<uint8_t, 16> du8;
  const hn::DFromV<Values> d8;
  const D16 d16;
  const auto bytes = hn::LoadU(du8, packed);
  const auto even = hn::TableLookupBytes(values, hn::BitCast(d8, hn::And(bytes, hn::Set(du8, 15))));
  const auto odd = hn::TableLookupBytes(values, hn::BitCast(d8, hn::ShiftRight<4>(bytes)));
  const auto first = hn::InterleaveLower(d8, even, odd);
  const auto second = hn::InterleaveUpper(d8, even, odd);
  if constexpr (kGroupVectors == 1) {
    out[0] = hn::PromoteTo(d16, hn::Combine(hn::Twice<decltype(d8)>(), second, first));
  } else if constexpr (kGroupVectors == 2) {
    out[0] = hn::PromoteTo(d16, first);
    out[1] = hn::PromoteTo(d16, second);
  } else {
    const hn::Half<decltype(d8)> half;
    out[0] = hn::PromoteTo(d16, hn::LowerHalf(first));
    out[1] = hn::PromoteTo(d16, hn::UpperHalf(half, first));
    out[2] = hn::PromoteTo(d16, hn::LowerHalf(second));
    out[3] = hn::PromoteTo(d16, hn::UpperHalf(half, second));
  }
}

// One row of mxfp4 against kTile vectors of codes.
template <size_t kTile>
void sum_mxfp4_row(const MatrixView& weights, int64_t row, const int16_t* const* codes,
                   double* sums) {
  const D16 d16;
  const D32 d32;
  const hn::Half<D32> half32;
  alignas(16) int8_t doubled[16];
  for (unsigned code = 0; code < 16; ++code) {
    doubled[code] = static_cast<int8_t>(decode_mxfp4_doubled(code));
  }
  const auto values = hn::Load(hn::FixedTag<int8_t, 16>(), doubled);
  const auto* row_codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * weights.row_stride_bytes);
  const uint8_t* scales = weights.scales + row * weights.scales_per_row;
  V64 totals[kTile];
  for (size_t t = 0; t < kTile; ++t) totals[t] = hn::Zero(D64());
  for (int64_t group = 0; group < weights.scales_per_row; ++group) {
    V16 w[kGroupVectors];
    decode_group(row_codes + group * (kMxfp4GroupInputs / 2), values, w);
    const int shift = mxfp4_shift(scales[group], weights.least_exponent);
    for (size_t t = 0; t < kTile; ++t) {
      const int16_t* x = codes[t] + group * kMxfp4GroupInputs;
      V32 even = hn::Zero(d32);
      V32 odd = hn::Zero(d32);
      for (size_t v = 0; v < kGroupVectors; ++v) {
        even = hn::ReorderWidenMulAccumulate(d32, w[v], hn::Load(d16, x + v * kCodes), even, odd);
      }
      // A group's sum fits int32 with room, so half the lanes carry it into int64.
      const V32 sum = hn::Add(even, odd);
      const auto folded = hn::Add(hn::LowerHalf(half32, sum), hn::UpperHalf(half32, sum));
      totals[t] = hn::Add(totals[t], hn::ShiftLeftSame(hn::PromoteTo(D64(), folded), shift));
    }
  }
  for (size_t t = 0; t < kTile; ++t) sums[t] = reduce_integers(totals[t]);
}

// kDoubles consecutive weights or activations as doubles.
VF64 load_doubles(const float* x) {
  return hn::PromoteTo(DF64(), hn::LoadU(hn::Rebind<float, DF64>(), x));
}
VF64 load_doubles(const uint16_t* x) {
  const hn::Rebind<uint32_t, DF64> d32;
  const auto upper = hn::PromoteTo(d32, hn::LoadU(hn::Rebind<uint16_t, DF64>(), x));
  const auto value = hn::BitCast(hn::Rebind<float, DF64>(), hn::ShiftLeft<16>(upper));
  return hn::PromoteTo(DF64(), value);
}

double to_double(float value) {
  return static_cast<double>(value);
}
double to_double(uint16_t bf16) {
  return static_cast<double>(decode_bf16(bf16));
}

// One row of float or bf16 weights against kTile vectors of floats.
template <size_t kTile, class Weight>
void sum_float_row(const Weight* w, int64_t cols, const float* const* x, double* sums) {
  VF64 lanes[kTile][kLaneVectors];
  for (size_t t = 0; t < kTile; ++t) {
    for (size_t v = 0; v < kLaneVectors; ++v) lanes[t][v] = hn::Zero(DF64());
  }
  int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) {
    for (size_t v = 0; v < kLaneVectors; ++v) {
      const VF64 weight = load_doubles(w + c + v * kDoubles);
      for (size_t t = 0; t < kTile; ++t) {
        lanes[t][v] = hn::MulAdd(weight, load_doubles(x[t] + c + v * kDoubles), lanes[t][v]);
      }
    }
  }
  for (size_t t = 0; t < kTile; ++t) {
    double stored[kLanes];
    for (size_t v = 0; v < kLaneVectors; ++v) {
      hn::StoreU(lanes[t][v], DF64(), stored + v * kDoubles);
    }
    for (int64_t l = 0; c + l < cols; ++l)
      stored[l] += to_double(w[c + l]) * to_double(x[t][c + l]);
    sums[t] = reduce_lanes(stored);
  }
}

// Rows against a tile of kTile vectors, whatever the format. A tile's vectors stay in the cache
// while the rows pass.
template <size_t kTile>
void sum_tile(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const ActivationVector* const* x, double* sums) {
  const int16_t* codes[kTile];
  const float* values[kTile];
  for (size_t t = 0; t < kTile; ++t) {
    codes[t] = x[t]->codes;
    values[t] = x[t]->values;
  }
  for (int64_t r = row_begin; r < row_end; ++r) {
    double tile_sums[kTile] = {};
    const std::byte* row = weights.codes + r * weights.row_stride_bytes;
    switch (weights.format) {
      case Format::kF32:
        sum_float_row<kTile>(reinterpret_cast<const float*>(row), weights.cols, values, tile_sums);
        break;
      case Format::kBf16:
        sum_float_row<kTile>(reinterpret_cast<const uint16_t*>(row), weights.cols, values,
                             tile_sums);
        break;
      case Format::kInt8:
        sum_block_row<kTile, Int8Lines>(weights, r, codes, tile_sums);
        break;
      case Format::kTernary:
        sum_block_row<kTile, TernaryLines>(weights, r, codes, tile_sums);
        break;
      case Format::kTernary2:
        sum_block_row<kTile, Ternary2Lines>(weights, r, codes, tile_sums);
        break;
      case Format::kMxfp4:
        sum_mxfp4_row<kTile>(weights, r, codes, tile_sums);
        break;
    }
    for (size_t t = 0; t < kTile; ++t) {
      sums[static_cast<int64_t>(t) * (row_end - row_begin) + r - row_begin] = tile_sums[t];
    }
  }
}

void sum_rows(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const ActivationVector* const* x, size_t count, double* sums) {
  const size_t tile = reads_codes(weights.format) ? kIntegerTile : kFloatTile;
  const int64_t rows = row_end - row_begin;
  size_t i = 0;
  for (; tile == 4 && i + 4 <= count; i += 4) {
    sum_tile<4>(weights, row_begin, row_end, x + i, sums + static_cast<int64_t>(i) * rows);
  }
  for (; i < count; ++i) {
    sum_tile<1>(weights, row_begin, row_end, x + i, sums + static_cast<int64_t>(i) * rows);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// Compiled for each target so that rint is an instruction where there is one.
K3_FLATTEN void add_scaled_terms(const double* row_sums, int64_t n, float weight, double power,
                                 int64_t* sums, uint8_t* in_range) {
  for (int64_t i = 0; i < n; ++i) {
    exact_add_term(row_sums[i] * static_cast<double>(weight) * power, sums[i], in_range[i]);
  }
}

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(quantize_vector);
HWY_EXPORT(sum_rows);
HWY_EXPORT(add_scaled_terms);

// Codes a vector needs, so that no load of a product passes its end.
int64_t padded_codes(Format format, int64_t cols) {
  const int64_t block = lies_in_blocks160(format) ? kBlockInputs : kMxfp4GroupInputs;
  return reads_codes(format) ? align_up(cols, block) : 0;
}

}  // namespace

ActivationStep quantize(const float* x, int64_t n, int16_t* codes) {
  return HWY_DYNAMIC_DISPATCH(quantize_vector)(x, n, codes);
}

ActivationBatch::ActivationBatch(Format format, int64_t count, int64_t cols)
    : vectors_(static_cast<size_t>(count)), stride_(padded_codes(format, cols)) {
  if (count * stride_ == 0) return;
  codes_ = hwy::AllocateAligned<int16_t>(static_cast<size_t>(count * stride_));
  K3_CHECK(codes_ != nullptr);
  for (int64_t i = 0; i < count; ++i) {
    vectors_[static_cast<size_t>(i)].codes = codes_.get() + i * stride_;
  }
}

void ActivationBatch::set(int64_t i, const float* x, int64_t cols) {
  ActivationVector& vector = vectors_[static_cast<size_t>(i)];
  if (stride_ == 0) {
    vector.values = x;
    return;
  }
  int16_t* codes = codes_.get() + i * stride_;
  vector.step = quantize(x, cols, codes);
  std::fill(codes + cols, codes + stride_, int16_t{0});
}

void row_sums(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              std::span<const ActivationVector* const> x, double* sums) {
  HWY_DYNAMIC_DISPATCH(sum_rows)(weights, row_begin, row_end, x.data(), x.size(), sums);
}

void add_terms(const double* row_sums, int64_t n, float weight, double power, int64_t* sums,
               uint8_t* in_range) {
  HWY_DYNAMIC_DISPATCH(add_scaled_terms)(row_sums, n, weight, power, sums, in_range);
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
