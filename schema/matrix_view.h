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
  const uint8_t* scales =
      nullptr;  // int8: multiplier per 160 inputs; mxfp4: E8M0 byte per 32; else null
  int64_t scales_per_row = 0;
  const float* row_scales = nullptr;  // int8: [rows]; else null
  int least_exponent = 0;             // mxfp4: least E8M0 byte among groups that are not all zero
};

// A [rows, cols] trunk matrix in its extent: row_major for f32 and bf16, blocks160 for int8.
// `extent` is 64-byte aligned.
inline MatrixView view_matrix(Format format, int64_t rows, int64_t cols, const std::byte* extent) {
  MatrixView view{.format = format, .rows = rows, .cols = cols, .codes = extent};
  if (format == Format::kInt8) {
    const Blocks160 place{rows, cols};
    view.row_stride_bytes = place.row_stride_bytes();
    view.scales = reinterpret_cast<const uint8_t*>(extent + place.multipliers_offset());
    view.scales_per_row = place.blocks_per_row();
    view.row_scales = reinterpret_cast<const float*>(extent + place.row_scales_offset());
  } else {
    view.row_stride_bytes = packed_row_bytes(format, cols);
  }
  return view;
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
