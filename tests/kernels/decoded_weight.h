// The weights of a matrix, one at a time, by another path than the kernels' own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schema/formats/bf16.h"
#include "schema/formats/int8.h"
#include "schema/formats/mxfp4.h"
#include "schema/matrix_view.h"

namespace k3 {

// The trit of an input by the definition: the byte is the least fraction of 256ths that is not
// below v / 243, and v's base-3 digits are trit + 1.
inline int trit_at(const std::byte* row, int64_t c) {
  const int byte = std::to_integer<int>(row[c / 160 * 32 + c % 32]);
  int v = 0;
  while ((v + 1) * 256 <= byte * 243) ++v;
  for (int64_t place = c % 160 / 32; place < 4; ++place) v /= 3;
  return v % 3 - 1;
}

// One element of a matrix, looked up by its own path.
inline double decoded_weight(const MatrixView& w, int64_t r, int64_t c) {
  const std::byte* row = w.codes + r * w.row_stride_bytes;
  const uint8_t* scales = w.scales + r * w.scales_per_row;
  switch (w.format) {
    case Format::kF32:
      return static_cast<double>(reinterpret_cast<const float*>(row)[c]);
    case Format::kBf16:
      return static_cast<double>(decode_bf16(reinterpret_cast<const uint16_t*>(row)[c]));
    case Format::kInt8:
      return decode_int8(reinterpret_cast<const int8_t*>(row)[c], scales[c / 160], w.row_scales[r]);
    case Format::kTernary:
      return static_cast<double>(w.row_scales[r]) * (scales[c / 160] * trit_at(row, c));
    case Format::kTernary2: {
      const std::byte* second = w.second_codes + r * w.row_stride_bytes;
      return static_cast<double>(w.row_scales[r]) *
             (scales[c / 160] * (3 * trit_at(row, c) + trit_at(second, c)));
    }
    case Format::kMxfp4:
      return static_cast<double>(
          decode_mxfp4(mxfp4_code_at(reinterpret_cast<const uint8_t*>(row), c), scales[c / 32]));
  }
  return 0;
}

}  // namespace k3
