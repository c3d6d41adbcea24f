// y = W x for every format: the one product behind all projections, shared experts and the head.
//
// Integer formats (int8, ternary, ternary2, mxfp4) read the activations as int16 codes and add
// integers, so neither order nor tiling can change a bit; one fixed sequence of double
// multiplications ends a row. Float formats (bf16, f32) read the float activations: a product of
// two floats has at most 48 bits, so it is exact in double and a fused multiply-add gives the same
// bits as a product and a sum; the sum runs in the order of lane_sum.h.
//
// exact_row_sum and exact_output are the contract. `reference` keeps float activations and adds
// doubles in index order. With n = cols, the true sum S, M = sum |w x| and
//   B = n 2^-52 M                for both double sums, at most n roundings each
//     + 2^(e - 1) sum |w|        for integer formats: a code is off by half a step at most
// the two differ by at most B + 2^-22 (|S| + B) + 2^-148: the last roundings to float and the few
// in double before them, also where floats are subnormal.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/lane_sum.h"
#include "kernels/quantize_activations.h"
#include "schema/formats/bf16.h"
#include "schema/formats/int8.h"
#include "schema/formats/mxfp4.h"
#include "schema/formats/ternary.h"
#include "schema/host_device.h"
#include "schema/matrix_view.h"

namespace k3 {

// Whether a product with weights of this format reads activations as codes rather than floats.
K3_HOST_DEVICE inline bool reads_codes(Format format) {
  return lies_in_blocks160(format) || format == Format::kMxfp4;
}

// One input vector of a product. Only what the format reads has to be there: `codes` and `step`, or
// `values`.
struct ActivationVector {
  const float* values = nullptr;
  const int16_t* codes = nullptr;
  ActivationStep step;
};

// The shift of an mxfp4 group against the matrix's least exponent. k3c writes no matrix that spans
// more than 31; holding the shift to 0..31 gives a pack that is not k3c's (NaN scales among them) a
// wrong number instead of undefined behaviour. A group of zeros may lie below the least exponent.
K3_HOST_DEVICE inline int mxfp4_shift(uint8_t scale, int least_exponent) {
  const int shift = static_cast<int>(scale) - least_exponent;
  return shift < 0 ? 0 : shift > 31 ? 31 : shift;
}

// Sum over blocks of 160 inputs of multiplier * sum of code_at(input) * q. For int8 a block's sum
// stays below 160 * 128 * 32639 < 2^30 and a row's below 2^46 up to 33,792 inputs; the other
// formats of blocks160 have smaller codes.
template <class CodeAt>
K3_HOST_DEVICE inline int64_t exact_block_sum(const MatrixView& weights, int64_t row,
                                              const int16_t* codes, const CodeAt& code_at) {
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
  int64_t sum = 0;
  for (int64_t begin = 0; begin < weights.cols; begin += kBlockInputs) {
    const int64_t end = begin + kBlockInputs < weights.cols ? begin + kBlockInputs : weights.cols;
    int32_t block = 0;
    for (int64_t c = begin; c < end; ++c) block += code_at(c) * codes[c];
    sum += static_cast<int64_t>(block) * multipliers[begin / kBlockInputs];
  }
  return sum;
}

K3_HOST_DEVICE inline int64_t exact_int8_row_sum(const MatrixView& weights, int64_t row,
                                                 const int16_t* codes) {
  const auto* row_codes =
      reinterpret_cast<const int8_t*>(weights.codes + row * weights.row_stride_bytes);
  return exact_block_sum(weights, row, codes,
                         [row_codes](int64_t c) { return int32_t{row_codes[c]}; });
}

// ternary and ternary2.
K3_HOST_DEVICE inline int64_t exact_ternary_row_sum(const MatrixView& weights, int64_t row,
                                                    const int16_t* codes) {
  return exact_block_sum(weights, row, codes, [&weights, row](int64_t c) {
    return int32_t{ternary_code_at(weights, row, c)};
  });
}

// Sum over groups of 32 inputs of (sum of doubled code * q) << shift. A group's sum stays below
// 2^24, so at the widest span a row fits up to 10,944 inputs; beyond, the sum wraps.
K3_HOST_DEVICE inline int64_t exact_mxfp4_row_sum(const MatrixView& weights, int64_t row,
                                                  const int16_t* codes) {
  const auto* row_codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * weights.row_stride_bytes);
  const uint8_t* scales = weights.scales + row * weights.scales_per_row;
  uint64_t sum = 0;
  for (int64_t g = 0; g * kMxfp4GroupInputs < weights.cols; ++g) {
    int32_t group = 0;
    for (int64_t c = g * kMxfp4GroupInputs; c < (g + 1) * kMxfp4GroupInputs; ++c) {
      group += decode_mxfp4_doubled(mxfp4_code_at(row_codes, c)) * codes[c];
    }
    sum += static_cast<uint64_t>(static_cast<int64_t>(group))
           << mxfp4_shift(scales[g], weights.least_exponent);
  }
  return static_cast<int64_t>(sum);
}

K3_HOST_DEVICE inline double exact_bf16_row_sum(const MatrixView& weights, int64_t row,
                                                const float* x) {
  const auto* w = reinterpret_cast<const uint16_t*>(weights.codes + row * weights.row_stride_bytes);
  return lane_sum(weights.cols, [w, x](int64_t c) {
    return static_cast<double>(decode_bf16(w[c])) * static_cast<double>(x[c]);
  });
}

K3_HOST_DEVICE inline double exact_f32_row_sum(const MatrixView& weights, int64_t row,
                                               const float* x) {
  const auto* w = reinterpret_cast<const float*>(weights.codes + row * weights.row_stride_bytes);
  return lane_sum(weights.cols, [w, x](int64_t c) {
    return static_cast<double>(w[c]) * static_cast<double>(x[c]);
  });
}

// What a row adds up to before its scale: the lane sum, or the integer sum rounded to double (exact
// below 2^53).
K3_HOST_DEVICE inline double exact_row_sum(const MatrixView& weights, int64_t row,
                                           const ActivationVector& x) {
  switch (weights.format) {
    case Format::kF32:
      return exact_f32_row_sum(weights, row, x.values);
    case Format::kBf16:
      return exact_bf16_row_sum(weights, row, x.values);
    case Format::kInt8:
      return static_cast<double>(exact_int8_row_sum(weights, row, x.codes));
    case Format::kTernary:
    case Format::kTernary2:
      return static_cast<double>(exact_ternary_row_sum(weights, row, x.codes));
    case Format::kMxfp4:
      return static_cast<double>(exact_mxfp4_row_sum(weights, row, x.codes));
  }
  return 0.0;
}

// The power of two that every output of a vector is multiplied with: its step, and what one unit of
// mxfp4's sums counts. NaN when the vector is not finite.
K3_HOST_DEVICE inline double exact_output_power(const MatrixView& weights, ActivationStep step) {
  switch (weights.format) {
    case Format::kF32:
    case Format::kBf16:
      return 1.0;
    case Format::kInt8:
    case Format::kTernary:
    case Format::kTernary2:
      return step_power(step, 0);
    case Format::kMxfp4:  // 127 is E8M0's bias, 1 the doubling of the codes
      return step_power(step, weights.least_exponent - 1 - 127);
  }
  return 1.0;
}

// y from a row's sum and its vector's power: the scales, multiplied in double in the order written,
// then one rounding to float (IEEE: it may overflow to infinity or underflow).
K3_HOST_DEVICE inline float exact_scaled_output(const MatrixView& weights, int64_t row,
                                                double row_sum, double power) {
  if (weights.format == Format::kF32 || weights.format == Format::kBf16) {
    return static_cast<float>(row_sum);
  }
  if (weights.format == Format::kMxfp4) return static_cast<float>(row_sum * power);
  return static_cast<float>(row_sum * static_cast<double>(weights.row_scales[row]) * power);
}

K3_HOST_DEVICE inline float exact_output(const MatrixView& weights, int64_t row, double row_sum,
                                         ActivationStep step) {
  return exact_scaled_output(weights, row, row_sum, exact_output_power(weights, step));
}

}  // namespace k3

namespace k3::reference {
// y[t, r] = sum over c of W[r, c] * x[t, c]; x is [tokens, cols], y is [tokens, rows], both
// row-major and not overlapping. cols is a multiple of 32 for mxfp4. One thread; double sums in
// index order.
void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y);

// The same sums before their rounding to float, continued: sums[t, r] += W[r, c] * x[t, c], c
// ascending.
void add_products(const MatrixView& weights, const float* x, int64_t tokens, double* sums);
}  // namespace k3::reference

namespace k3::cpu {
// As reference::matmul, with the bits of exact_output on any number of threads.
void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y);
}  // namespace k3::cpu
