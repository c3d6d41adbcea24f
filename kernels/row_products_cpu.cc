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
#define HWY_DISABLED_TARGETS (K3_FOREIGN_TARGETS | HWY_SVE)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_products_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/float_rows-inl.h"
#include "kernels/int8_rows-inl.h"
#include "kernels/lanes-inl.h"
#include "kernels/mxfp4_rows-inl.h"
#include "kernels/ternary_batch-inl.h"
#include "kernels/ternary_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

ActivationStep quantize_vector(const float* x, int64_t n, int16_t* codes) {
  return exact_quantize(x, n, codes);
}

int64_t bytes_of_arranged(Format /*format*/, int64_t /*count*/, int64_t /*cols*/) {
  return 0;
}

void arrange_codes(Format /*format*/, const int16_t* /*codes*/, int64_t /*cols*/,
                   std::byte* /*arranged*/) {}

void arrange_values(Format /*format*/, const float* /*x*/, int64_t /*cols*/,
                    std::byte* /*arranged*/) {}

void sum_rows(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const PreparedVector* const* x, size_t count, double* sums,
              const ReadAhead& /*ahead*/) {
  for (size_t i = 0; i < count; ++i) {
    const ActivationVector vector{.values = x[i]->values, .codes = x[i]->codes, .step = x[i]->step};
    for (int64_t r = row_begin; r < row_end; ++r) *sums++ = exact_row_sum(weights, r, vector);
  }
}

#else

// Float rows that are taken together and share their loads of activations.
constexpr int64_t kFloatRows = kDoubles == 8 ? 2 : 1;

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

// From how many vectors on trits are decoded for all of them.
constexpr int64_t kManyVectors = 8;

// Of one of `count` vectors of cols values, as arrange_codes or arrange_values leaves it.
int64_t bytes_of_arranged(Format format, int64_t count, int64_t cols) {
  switch (format) {
    case Format::kF32:
    case Format::kBf16:
      return cols / kLanes * kLanes * static_cast<int64_t>(sizeof(double));
    case Format::kInt8:
      return 0;
    case Format::kMxfp4:
      return arranged_mxfp4_codes(cols) * static_cast<int64_t>(sizeof(int16_t));
    case Format::kTernary:
    case Format::kTernary2:
      return count < kManyVectors ? arranged_ternary_bytes(cols) : 0;
  }
  return 0;
}

// `codes` is padded with zeros to two blocks of 160.
void arrange_codes(Format format, const int16_t* codes, int64_t cols, std::byte* arranged) {
  if (format == Format::kMxfp4) {
    arrange_for_mxfp4(codes, cols, reinterpret_cast<int16_t*>(arranged));
  } else {
    const uint8_t offset =
        format == Format::kTernary ? TernaryLines::kOffset : Ternary2Lines::kOffset;
    arrange_for_ternary(codes, cols, offset, reinterpret_cast<int8_t*>(arranged));
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

// A stretch of columns of kTile vectors fills half the first-level cache, and meets kBlockRows rows
// before the next stretch.
constexpr int64_t kBlockRows = 16;
constexpr int64_t kStretchInputs = 10240;  // a common multiple of every format's steps
static_assert(kStretchInputs % (4 * kPairInputs) == 0 &&
              kStretchInputs / 4 % (2 * kBlockInputs) == 0);

// Adds the inputs [begin, end) of kRows rows in blocks of 160 to totals[row * kTile + t].
template <size_t kRows, size_t kTile>
void add_rows(const MatrixView& weights, int64_t row, int64_t begin, int64_t end, int64_t ahead,
              const PreparedVector* const* x, int64_t* totals) {
  const int16_t* codes[kTile];
  const int8_t* bytes[kTile];
  for (size_t t = 0; t < kTile; ++t) {
    codes[t] = x[t]->codes;
    bytes[t] = reinterpret_cast<const int8_t*>(x[t]->arranged);
  }
  const int64_t first_block = begin / kBlockInputs;
  const int64_t end_block = divide_up(end, kBlockInputs);
  if (weights.format == Format::kTernary) {
    add_ternary_rows<TernaryLines, kRows, kTile>(weights, row, first_block, end_block, bytes,
                                                 totals);
    return;
  }
  if (weights.format == Format::kTernary2) {
    add_ternary_rows<Ternary2Lines, kRows, kTile>(weights, row, first_block, end_block, bytes,
                                                  totals);
    return;
  }
  for (size_t r = 0; r < kRows; ++r) {
    add_int8_row<kTile>(weights, row + static_cast<int64_t>(r), first_block, end_block, ahead,
                        codes, totals + r * kTile);
  }
}

// At most kBlockRows mxfp4 rows against kTile vectors: sums[t * stride + row].
template <size_t kTile>
void sum_mxfp4_block(const MatrixView& weights, int64_t first_row, int64_t rows,
                     const PreparedVector* const* x, int64_t stride, int64_t ahead, double* sums) {
  const int16_t* codes[kTile];
  for (size_t t = 0; t < kTile; ++t) codes[t] = reinterpret_cast<const int16_t*>(x[t]->arranged);
  int64_t totals[kTile][kBlockRows] = {};
  constexpr int64_t kInputs = kStretchInputs / static_cast<int64_t>(kTile);
  for (int64_t begin = 0; begin < weights.cols; begin += kInputs) {
    const int64_t end = begin + kInputs < weights.cols ? begin + kInputs : weights.cols;
    add_mxfp4_rows<kTile>(weights, first_row, rows, begin, end, ahead, codes, kBlockRows,
                          totals[0]);
  }
  for (size_t t = 0; t < kTile; ++t) {
    double* to = sums + static_cast<int64_t>(t) * stride;
    for (int64_t r = 0; r < rows; ++r) to[r] = static_cast<double>(totals[t][r]);
  }
}

// At most kBlockRows rows of blocks of 160, alike.
template <size_t kTile>
void sum_block160_rows(const MatrixView& weights, int64_t first_row, int64_t rows,
                       const PreparedVector* const* x, int64_t stride, int64_t ahead,
                       double* sums) {
  int64_t totals[kBlockRows][kTile] = {};
  constexpr int64_t kInputs = kStretchInputs / static_cast<int64_t>(kTile);
  for (int64_t begin = 0; begin < weights.cols; begin += kInputs) {
    const int64_t end = begin + kInputs < weights.cols ? begin + kInputs : weights.cols;
    int64_t r = 0;
    if constexpr (kTile == 2) {
      for (; r + 2 <= rows; r += 2) {
        add_rows<2, kTile>(weights, first_row + r, begin, end, ahead, x, totals[r]);
      }
    }
    for (; r < rows; ++r) {
      add_rows<1, kTile>(weights, first_row + r, begin, end, ahead, x, totals[r]);
    }
  }
  for (size_t t = 0; t < kTile; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      sums[static_cast<int64_t>(t) * stride + r] = static_cast<double>(totals[r][t]);
    }
  }
}

// At most kBlockRows float rows, alike.
template <class Weights, size_t kTile>
void sum_float_rows(const MatrixView& weights, int64_t first_row, int64_t rows,
                    const PreparedVector* const* x, int64_t stride, int64_t ahead, double* sums) {
  const double* doubles[kTile];
  for (size_t t = 0; t < kTile; ++t) doubles[t] = reinterpret_cast<const double*>(x[t]->arranged);
  double lanes[kBlockRows * kTile][kLanes];
  // A single vector may lie in the second-level cache: what is read of it serves several rows.
  constexpr int64_t kInputs =
      kTile == 1 ? kStretchInputs : kStretchInputs / static_cast<int64_t>(5 * kTile);
  const int64_t whole = weights.cols / kLanes * kLanes;
  const std::byte* first = weights.codes + first_row * weights.row_stride_bytes;
  const int64_t row_bytes = weights.row_stride_bytes;
  if constexpr (kTile == 1) {
    if (whole == weights.cols && whole <= Weights::kNarrowInputs) {
      for (int64_t r = 0; r < rows; ++r) {
        sums[r] = sum_narrow_row<Weights>(first + r * row_bytes, whole, doubles[0]);
      }
      return;
    }
    if (whole == weights.cols && whole <= kInputs) {
      const int64_t distance = beyond_rows(ahead, kFloatRows * row_bytes);
      int64_t r = 0;
      for (; r + kFloatRows <= rows; r += kFloatRows) {
        sum_whole_rows<Weights, kFloatRows>(first + r * row_bytes, row_bytes, whole, distance,
                                            doubles[0], sums + r);
      }
      for (; r < rows; ++r) {
        sum_whole_rows<Weights, 1>(first + r * row_bytes, row_bytes, whole, ahead, doubles[0],
                                   sums + r);
      }
      return;
    }
  }
  int64_t begin = 0;
  do {  // once without a whole unit, too: the lanes start here
    const int64_t end = begin + kInputs < whole ? begin + kInputs : whole;
    // From a piece of rows to the piece that is read behind it, which is seldom the one in memory.
    const auto to_next = [&](int64_t row, int64_t count) {
      if (whole <= kInputs) return beyond_rows(ahead, count * row_bytes);
      if (row + 2 * count <= rows) return count * row_bytes;
      constexpr auto kWeightBytes = static_cast<int64_t>(sizeof(typename Weights::Weight));
      if (end < whole) return (end - begin) * kWeightBytes - row * row_bytes;
      return (rows - row) * row_bytes - begin * kWeightBytes;
    };
    int64_t r = 0;
    for (; r + kFloatRows <= rows; r += kFloatRows) {
      add_float_rows<Weights, kFloatRows, kTile>(first + r * row_bytes, row_bytes, begin, end,
                                                 to_next(r, kFloatRows), doubles,
                                                 lanes + r * static_cast<int64_t>(kTile));
    }
    for (; r < rows; ++r) {
      add_float_rows<Weights, 1, kTile>(first + r * row_bytes, row_bytes, begin, end, to_next(r, 1),
                                        doubles, lanes + r * static_cast<int64_t>(kTile));
    }
    begin = end;
  } while (begin < whole);
  for (size_t t = 0; t < kTile; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      sums[static_cast<int64_t>(t) * stride + r] = finish_float_row<Weights>(
          first + r * row_bytes, whole, weights.cols, x[t]->values,
          lanes[r * static_cast<int64_t>(kTile) + static_cast<int64_t>(t)]);
    }
  }
}

template <size_t kTile>
void sum_tile(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const PreparedVector* const* x, double* sums, const ReadAhead& ahead) {
  const int64_t stride = row_end - row_begin;
  for (int64_t begin = row_begin; begin < row_end; begin += kBlockRows) {
    const int64_t rows = row_end - begin < kBlockRows ? row_end - begin : kBlockRows;
    double* to = sums + (begin - row_begin);
    const int64_t distance =
        distance_ahead(weights.codes + begin * weights.row_stride_bytes, ahead);
    if (weights.format == Format::kMxfp4) {
      sum_mxfp4_block<kTile>(weights, begin, rows, x, stride, distance, to);
    } else if (reads_codes(weights.format)) {
      sum_block160_rows<kTile>(weights, begin, rows, x, stride, distance, to);
    } else if (weights.format == Format::kBf16) {
      sum_float_rows<Bf16Weights, kTile>(weights, begin, rows, x, stride, distance, to);
    } else {
      sum_float_rows<F32Weights, kTile>(weights, begin, rows, x, stride, distance, to);
    }
  }
}

template <class Lines>
void sum_many(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const PreparedVector* const* x, size_t count, double* sums) {
  const int64_t rows = row_end - row_begin;
  const int16_t* codes[kBatchVectors];
  for (size_t begin = 0; begin < count; begin += kBatchVectors) {
    const size_t vectors = count - begin < kBatchVectors ? count - begin : kBatchVectors;
    for (size_t t = 0; t < vectors; ++t) codes[t] = x[begin + t]->codes;
    double* to = sums + static_cast<int64_t>(begin) * rows;
    constexpr auto kStep = static_cast<int64_t>(kDecodedRows);
    int64_t r = 0;
    for (; r + kStep <= rows; r += kStep) {
      sum_ternary_batch<Lines, kDecodedRows>(weights, row_begin + r, codes, vectors, rows, to + r);
    }
    for (; r < rows; ++r) {
      sum_ternary_batch<Lines, 1>(weights, row_begin + r, codes, vectors, rows, to + r);
    }
  }
}

void sum_rows(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              const PreparedVector* const* x, size_t count, double* sums, const ReadAhead& ahead) {
  const int64_t rows = row_end - row_begin;
  const bool is_ternary = weights.format == Format::kTernary || weights.format == Format::kTernary2;
  if (is_ternary && count > 0 && x[0]->arranged == nullptr) {
    if (weights.format == Format::kTernary) {
      sum_many<TernaryLines>(weights, row_begin, row_end, x, count, sums);
    } else {
      sum_many<Ternary2Lines>(weights, row_begin, row_end, x, count, sums);
    }
    return;
  }
  size_t i = 0;
  const auto at = [&] { return sums + static_cast<int64_t>(i) * rows; };
  for (; reads_codes(weights.format) && i + 4 <= count; i += 4) {
    sum_tile<4>(weights, row_begin, row_end, x + i, at(), ahead);
  }
  for (; i + 2 <= count; i += 2) sum_tile<2>(weights, row_begin, row_end, x + i, at(), ahead);
  for (; i < count; ++i) sum_tile<1>(weights, row_begin, row_end, x + i, at(), ahead);
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

// A vector's bytes: its codes in their own order, then what is arranged.
ActivationBatch::ActivationBatch(Format format, int64_t count, int64_t cols)
    : format_(format), vectors_(static_cast<size_t>(count)) {
  const int64_t arranged_bytes =
      align_up(HWY_DYNAMIC_DISPATCH(bytes_of_arranged)(format, count, cols), kPlaneAlignment);
  codes_ = reads_codes(format) ? align_up(cols, 2 * kBlockInputs) : 0;
  const int64_t code_bytes = align_up(codes_ * 2, kPlaneAlignment);
  stride_bytes_ = code_bytes + arranged_bytes;
  if (count * stride_bytes_ == 0) return;
  bytes_ = hwy::AllocateAligned<std::byte>(static_cast<size_t>(count * stride_bytes_));
  K3_CHECK(bytes_ != nullptr);
  for (int64_t i = 0; i < count; ++i) {
    PreparedVector& vector = vectors_[static_cast<size_t>(i)];
    std::byte* bytes = bytes_.get() + i * stride_bytes_;
    if (codes_ > 0) vector.codes = reinterpret_cast<const int16_t*>(bytes);
    if (arranged_bytes > 0) vector.arranged = bytes + code_bytes;
  }
}

void ActivationBatch::set(int64_t i, const float* x, int64_t cols) {
  PreparedVector& vector = vectors_[static_cast<size_t>(i)];
  // The batch's own bytes, which only it may write.
  auto* arranged = const_cast<std::byte*>(vector.arranged);
  vector.values = x;
  if (!reads_codes(format_)) {
    if (arranged != nullptr) HWY_DYNAMIC_DISPATCH(arrange_values)(format_, x, cols, arranged);
    return;
  }
  auto* codes = const_cast<int16_t*>(vector.codes);
  if (codes == nullptr) return;  // no inputs
  vector.step = quantize(x, cols, codes);
  std::fill(codes + cols, codes + codes_, int16_t{0});
  if (arranged != nullptr) HWY_DYNAMIC_DISPATCH(arrange_codes)(format_, codes, cols, arranged);
}

void row_sums(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              std::span<const PreparedVector* const> x, double* sums, const ReadAhead& ahead) {
  HWY_DYNAMIC_DISPATCH(sum_rows)(weights, row_begin, row_end, x.data(), x.size(), sums, ahead);
}

void add_terms(const double* row_sums, int64_t n, float weight, double power, int64_t* sums,
               uint8_t* in_range) {
  HWY_DYNAMIC_DISPATCH(add_scaled_terms)(row_sums, n, weight, power, sums, in_range);
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
