// One source for AVX-512 with and without VNNI, AVX2, 128-bit vectors (SSE4, NEON) and machines
// with none of them, chosen at run time. Every path gives the bits of the exact_ functions:
//   integers   sums of integers do not depend on how vectors split them.
//   floats     the 32 lanes of lane_sum.h lie in 4, 8 or 16 registers, each lane in its place in
//              every step.
// The machine without a vector unit runs the exact_ functions themselves.
//
// A format's rows are in FORMAT_rows-inl.h, with the order in which they want activations: a vector
// is arranged once and read by every row. A decoded piece of a row is used for up to four vectors
// at once: that keeps the decoding of a batch below its multiplications and the sums in registers.
#include "kernels/row_products_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/lane_sum.h"
#include "kernels/quantize_activations.h"
#include "kernels/routed_experts.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"
#include "schema/formats/ternary.h"
#include "schema/layout.h"

// Unlike loops that need std::fma, this code is worth a copy for SSE4, which also lets an x86
// machine test the 128-bit paths that NEON runs, and one for VNNI.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_products_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/float_rows-inl.h"
#include "kernels/int8_rows-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/mxfp4_rows-inl.h"
#include "kernels/ternary_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

ActivationStep quantize_vector(const float* x, int64_t n, int16_t* codes) {
  return exact_quantize(x, n, codes);
}

int64_t bytes_of_arranged(Format format, int64_t cols) {
  return reads_codes(format) ? cols * static_cast<int64_t>(sizeof(int16_t)) : 0;
}

void arrange_codes(Format /*format*/, const int16_t* codes, int64_t cols, std::byte* arranged) {
  std::copy_n(codes, cols, reinterpret_cast<int16_t*>(arranged));
}

void arrange_values(Format /*format*/, const float* /*x*/, int64_t /*cols*/,
                    std::byte* /*arranged*/) {}

void sum_rows(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const PreparedVector* const* x, size_t count, double* sums) {
  for (size_t i = 0; i < count; ++i) {
    const ActivationVector vector{.values = x[i]->values,
                                  .codes = reinterpret_cast<const int16_t*>(x[i]->arranged),
                                  .step = x[i]->step};
    for (int64_t r = row_begin; r < row_end; ++r) *sums++ = exact_row_sum(weights, r, vector);
  }
}

#else

constexpr size_t kFloatTile = 2;
constexpr int64_t kFloatRows = kDoubles == 8 ? 2 : 1;  // as many as registers hold

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

// Of one vector of cols values, as arrange_codes or arrange_values leaves it.
int64_t bytes_of_arranged(Format format, int64_t cols) {
  switch (format) {
    case Format::kF32:
    case Format::kBf16:
      return cols / kLanes * kLanes * static_cast<int64_t>(sizeof(double));
    case Format::kInt8:
      return align_up(cols, kBlockInputs) * static_cast<int64_t>(sizeof(int16_t));
    case Format::kMxfp4:
      return arranged_mxfp4_codes(cols) * static_cast<int64_t>(sizeof(int16_t));
    case Format::kTernary:
    case Format::kTernary2:
      return arranged_ternary_bytes(cols);
  }
  return 0;
}

// `codes` is padded with zeros to two blocks of 160.
void arrange_codes(Format format, const int16_t* codes, int64_t cols, std::byte* arranged) {
  if (format == Format::kMxfp4) {
    arrange_for_mxfp4(codes, cols, reinterpret_cast<int16_t*>(arranged));
  } else if (format == Format::kInt8) {
    std::memcpy(arranged, codes, static_cast<size_t>(bytes_of_arranged(format, cols)));
  } else {
    arrange_for_ternary(codes, cols, reinterpret_cast<int8_t*>(arranged));
  }
}

void arrange_values(Format format, const float* x, int64_t cols, std::byte* arranged) {
  auto* doubles = reinterpret_cast<double*>(arranged);
  if (format == Format::kBf16) {
    arrange_floats<Bf16Weights>(x, cols, doubles);
  } else {
    arrange_floats<F32Weights>(x, cols, doubles);
  }
}

// Integer rows against kTile vectors. A tile's vectors stay in the cache while the rows pass.
template <size_t kTile>
void sum_integer_tile(const MatrixView& weights, int64_t row_begin, int64_t row_end,
                      const PreparedVector* const* x, double* sums) {
  const int16_t* codes[kTile];
  const int8_t* bytes[kTile];
  for (size_t t = 0; t < kTile; ++t) {
    codes[t] = reinterpret_cast<const int16_t*>(x[t]->arranged);
    bytes[t] = reinterpret_cast<const int8_t*>(x[t]->arranged);
  }
  for (int64_t r = row_begin; r < row_end; ++r) {
    double tile_sums[kTile] = {};
    if (weights.format == Format::kMxfp4) {
      sum_mxfp4_row<kTile>(weights, r, codes, tile_sums);
    } else if (weights.format == Format::kInt8) {
      sum_int8_row<kTile>(weights, r, codes, tile_sums);
    } else if (weights.format == Format::kTernary) {
      sum_ternary_row<kTile, TernaryLines>(weights, r, bytes, tile_sums);
    } else {
      sum_ternary_row<kTile, Ternary2Lines>(weights, r, bytes, tile_sums);
    }
    for (size_t t = 0; t < kTile; ++t) {
      sums[static_cast<int64_t>(t) * (row_end - row_begin) + r - row_begin] = tile_sums[t];
    }
  }
}

template <class Weights, size_t kTile>
void sum_float_tile(const MatrixView& weights, int64_t row_begin, int64_t row_end,
                    const PreparedVector* const* x, double* sums) {
  const double* doubles[kTile];
  const float* values[kTile];
  for (size_t t = 0; t < kTile; ++t) {
    doubles[t] = reinterpret_cast<const double*>(x[t]->arranged);
    values[t] = x[t]->values;
  }
  const int64_t stride = weights.row_stride_bytes;
  const int64_t rows = row_end - row_begin;
  int64_t r = row_begin;
  for (; r + kFloatRows <= row_end; r += kFloatRows) {
    sum_float_rows<Weights, kFloatRows, kTile>(weights.codes + r * stride, stride, weights.cols,
                                               doubles, values, sums + (r - row_begin), rows);
  }
  for (; r < row_end; ++r) {
    sum_float_rows<Weights, 1, kTile>(weights.codes + r * stride, stride, weights.cols, doubles,
                                      values, sums + (r - row_begin), rows);
  }
}

template <size_t kTile>
void sum_tile(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const PreparedVector* const* x, double* sums) {
  if (weights.format == Format::kBf16) {
    sum_float_tile<Bf16Weights, kTile>(weights, row_begin, row_end, x, sums);
  } else if (weights.format == Format::kF32) {
    sum_float_tile<F32Weights, kTile>(weights, row_begin, row_end, x, sums);
  } else {
    sum_integer_tile<kTile>(weights, row_begin, row_end, x, sums);
  }
}

void sum_rows(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const PreparedVector* const* x, size_t count, double* sums) {
  const int64_t rows = row_end - row_begin;
  const bool is_integer = reads_codes(weights.format);
  size_t i = 0;
  for (; is_integer && i + 4 <= count; i += 4) {
    sum_integer_tile<4>(weights, row_begin, row_end, x + i, sums + static_cast<int64_t>(i) * rows);
  }
  for (; i + kFloatTile <= count; i += kFloatTile) {
    sum_tile<kFloatTile>(weights, row_begin, row_end, x + i, sums + static_cast<int64_t>(i) * rows);
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
HWY_EXPORT(bytes_of_arranged);
HWY_EXPORT(arrange_codes);
HWY_EXPORT(arrange_values);
HWY_EXPORT(sum_rows);
HWY_EXPORT(add_scaled_terms);

}  // namespace

ActivationStep quantize(const float* x, int64_t n, int16_t* codes) {
  return HWY_DYNAMIC_DISPATCH(quantize_vector)(x, n, codes);
}

// A vector's bytes: arranged, then its codes in their own order.
ActivationBatch::ActivationBatch(Format format, int64_t count, int64_t cols)
    : format_(format), vectors_(static_cast<size_t>(count)) {
  arranged_bytes_ =
      align_up(HWY_DYNAMIC_DISPATCH(bytes_of_arranged)(format, cols), kPlaneAlignment);
  codes_ = reads_codes(format) ? align_up(cols, 2 * kBlockInputs) : 0;
  stride_bytes_ = arranged_bytes_ + align_up(codes_ * 2, kPlaneAlignment);
  if (count * stride_bytes_ == 0) return;
  bytes_ = hwy::AllocateAligned<std::byte>(static_cast<size_t>(count * stride_bytes_));
  K3_CHECK(bytes_ != nullptr);
  for (int64_t i = 0; i < count; ++i) {
    vectors_[static_cast<size_t>(i)].arranged = bytes_.get() + i * stride_bytes_;
  }
}

void ActivationBatch::set(int64_t i, const float* x, int64_t cols) {
  PreparedVector& vector = vectors_[static_cast<size_t>(i)];
  std::byte* arranged = bytes_.get() + i * stride_bytes_;
  vector.values = x;
  if (!reads_codes(format_)) {
    HWY_DYNAMIC_DISPATCH(arrange_values)(format_, x, cols, arranged);
    return;
  }
  auto* codes = reinterpret_cast<int16_t*>(arranged + arranged_bytes_);
  vector.step = quantize(x, cols, codes);
  std::fill(codes + cols, codes + codes_, int16_t{0});
  HWY_DYNAMIC_DISPATCH(arrange_codes)(format_, codes, cols, arranged);
}

void row_sums(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              std::span<const PreparedVector* const> x, double* sums) {
  HWY_DYNAMIC_DISPATCH(sum_rows)(weights, row_begin, row_end, x.data(), x.size(), sums);
}

void add_terms(const double* row_sums, int64_t n, float weight, double power, int64_t* sums,
               uint8_t* in_range) {
  HWY_DYNAMIC_DISPATCH(add_scaled_terms)(row_sums, n, weight, power, sums, in_range);
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
