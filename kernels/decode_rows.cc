#include "kernels/decode_rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/formats/int8.h"
#include "schema/formats/mxfp4.h"
#include "schema/formats/ternary.h"

namespace k3 {
namespace {

using Trits = std::array<float, kTritsPerByte>;

constexpr std::array<Trits, 256> kTritsOf = [] {
  std::array<Trits, 256> trits{};
  for (size_t byte = 0; byte < trits.size(); ++byte) {
    for (int place = 0; place < kTritsPerByte; ++place) {
      trits[byte][static_cast<size_t>(place)] =
          static_cast<float>(decode_trit(static_cast<uint8_t>(byte), place));
    }
  }
  return trits;
}();

// out[c] = factor out[c] + the trits of a row of one plane.
void add_trits(const std::byte* plane, int64_t cols, float factor, float* out) {
  for (int64_t begin = 0; begin < cols; begin += kBlockInputs) {
    const std::byte* const bytes = plane + trit_byte(begin);
    for (int64_t i = begin; i < std::min(begin + kBlockInputs, cols); ++i) {
      const int64_t in_block = i - begin;
      const auto byte = std::to_integer<size_t>(bytes[in_block % kTernaryBlockBytes]);
      const float trit = kTritsOf[byte][static_cast<size_t>(in_block / kTernaryBlockBytes)];
      out[i] = factor * out[i] + trit;
    }
  }
}

// A group's values are its doubled codes times half its scale: both exact in float.
void decode_mxfp4_row(const MatrixView& weights, int64_t row, float* out) {
  static const std::array<float, 16> kDoubled = [] {
    std::array<float, 16> doubled;
    for (unsigned code = 0; code < 16; ++code) {
      doubled[code] = static_cast<float>(decode_mxfp4_doubled(code));
    }
    return doubled;
  }();
  const auto* codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * weights.row_stride_bytes);
  const uint8_t* scales = weights.scales + row * weights.scales_per_row;
  for (int64_t group = 0; group * kMxfp4GroupInputs < weights.cols; ++group) {
    const auto half_scale = static_cast<float>(0.5 * decode_e8m0(scales[group]));
    for (int64_t i = 0; i < kMxfp4GroupInputs; i += 2) {
      const unsigned pair = *codes++;
      *out++ = half_scale * kDoubled[pair & 15U];
      *out++ = half_scale * kDoubled[pair >> 4];
    }
  }
}

void decode_blocks_row(const MatrixView& weights, int64_t row, float* out) {
  decode_codes(weights, row, out);
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
  for (int64_t begin = 0; begin < weights.cols; begin += kBlockInputs) {
    const uint8_t multiplier = multipliers[begin / kBlockInputs];
    const double scale = static_cast<double>(weights.row_scales[row]) * multiplier;
    for (int64_t c = begin; c < std::min(begin + kBlockInputs, weights.cols); ++c) {
      out[c] = static_cast<float>(scale * static_cast<double>(out[c]));
    }
  }
}

void decode_row(const MatrixView& weights, int64_t row, float* out) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  switch (weights.format) {
    case Format::kF32:
      std::copy_n(reinterpret_cast<const float*>(codes), weights.cols, out);
      break;
    case Format::kBf16:
      std::transform(reinterpret_cast<const uint16_t*>(codes),
                     reinterpret_cast<const uint16_t*>(codes) + weights.cols, out, decode_bf16);
      break;
    case Format::kInt8:
    case Format::kTernary:
    case Format::kTernary2:
      decode_blocks_row(weights, row, out);
      break;
    case Format::kMxfp4:
      decode_mxfp4_row(weights, row, out);
      break;
  }
}

}  // namespace

void decode_codes(const MatrixView& weights, int64_t row, float* out) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  if (weights.format == Format::kInt8) {
    const auto* values = reinterpret_cast<const int8_t*>(codes);
    std::copy_n(values, weights.cols, out);
    return;
  }
  std::fill_n(out, weights.cols, 0.0F);
  add_trits(codes, weights.cols, 1.0F, out);
  if (weights.format == Format::kTernary2) {
    add_trits(weights.second_codes + row * weights.row_stride_bytes, weights.cols, 3.0F, out);
  }
}

void decode_rows(const MatrixView& weights, int64_t first, int64_t count, float* out) {
  for (int64_t row = first; row < first + count; ++row, out += weights.cols) {
    decode_row(weights, row, out);
  }
}

std::vector<float> decode_scales(const MatrixView& weights, const std::string& subject) {
  std::vector<float> scales;
  scales.reserve(static_cast<size_t>(weights.rows * weights.scales_per_row));
  for (int64_t i = 0; i < weights.rows * weights.scales_per_row; ++i) {
    const int64_t row = i / weights.scales_per_row;
    const float scale = weights.row_scales[row] * static_cast<float>(weights.scales[i]);
    if (!std::isfinite(scale) || scale < 0) {
      throw Error(subject, ": row ", row, ": block ", i % weights.scales_per_row, " has scale ",
                  scale, ", expected a finite number of at least 0");
    }
    scales.push_back(scale);
  }
  return scales;
}

}  // namespace k3
