// A matrix as the kernels see it: pointers into extent bytes that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schema/format.h"
#include "schema/host_device.h"
#include "schema/layout.h"

namespace k3 {

struct MatrixView {
  Format format = Format::kF32;
  int64_t rows = 0;                  // outputs
  int64_t cols = 0;                  // inputs
  const std::byte* codes = nullptr;  // row r starts at codes + r * row_stride_bytes
  int64_t row_stride_bytes = 0;
  const std::byte* second_codes = nullptr;  // ternary2: the plane of second trits; else null
  // blocks160: multiplier per 160 inputs; mxfp4: E8M0 byte per 32; else null
  const uint8_t* scales = nullptr;
  int64_t scales_per_row = 0;
  const float* row_scales = nullptr;  // blocks160: [rows]; else null
  int least_exponent = 0;             // mxfp4: least E8M0 byte among groups that are not all zero
};

// A [rows, cols] trunk matrix in its extent, in blocks160 or row_major as its format demands.
// `extent` is 64-byte aligned.
inline MatrixView view_matrix(Format format, int64_t rows, int64_t cols, const std::byte* extent) {
  MatrixView view{.format = format, .rows = rows, .cols = cols, .codes = extent};
  if (lies_in_blocks160(format)) {
    const Blocks160 place{format, rows, cols};
    view.row_stride_bytes = place.row_stride_bytes();
    if (place.planes() == 2) view.second_codes = extent + place.plane_offset(1);
    view.scales = reinterpret_cast<const uint8_t*>(extent + place.multipliers_offset());
    view.scales_per_row = place.blocks_per_row();
    view.row_scales = reinterpret_cast<const float*>(extent + place.row_scales_offset());
  } else {
    view.row_stride_bytes = packed_row_bytes(format, cols);
  }
  return view;
}

// The code of one weight of ternary (-1..1) or ternary2 (-4..4).
K3_HOST_DEVICE inline int ternary_code_at(const MatrixView& view, int64_t row, int64_t col) {
  const int64_t at = row * view.row_stride_bytes + trit_byte(col);
  const int place = trit_place(col);
  const int first = decode_trit(static_cast<uint8_t>(view.codes[at]), place);
  if (view.format == Format::kTernary) return first;
  return 3 * first + decode_trit(static_cast<uint8_t>(view.second_codes[at]), place);
}

// One matrix's part of one band of an expert: w1 or w3 as [band_inner, latent], w2 as [latent,
// band_inner].
K3_HOST_DEVICE inline MatrixView view_expert_part(const ExpertBands& place, int64_t band,
                                                  ExpertMatrix matrix, int least_exponent,
                                                  const std::byte* extent) {
  const ExpertBands::Part part = place.part(band, matrix);
  MatrixView view;
  view.format = place.format;
  view.rows = part.rows;
  view.cols = part.cols;
  view.codes = extent + part.codes_offset;
  view.row_stride_bytes = packed_row_bytes(place.format, part.cols);
  view.scales_per_row = place.scales_per_row(part.cols);
  view.scales = view.scales_per_row != 0
                    ? reinterpret_cast<const uint8_t*>(extent + part.scales_offset)
                    : nullptr;
  view.least_exponent = least_exponent;
  return view;
}

}  // namespace k3
