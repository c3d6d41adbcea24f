// Where the codes and scales of a matrix lie in its extent: tested bijections, used by the encoder
// and by every kernel.
//
// A place never depends on who reads it. Four layouts exist:
//   row_major             f32, bf16: the checkpoint's own bytes,
//                         row after row. Also for vectors and
//                         convolutions.
//   blocks160             int8, ternary, ternary2: rows cut into blocks of 160 inputs, padded with
//                         zero codes, so that a block of trits is one 32-byte load; then the plane
//                         of u8 multipliers, then the f32 row scales. ternary2 has a second plane
//                         of codes of the same geometry behind the first: each of the two is, byte
//                         for byte, a plane of ternary, and the first trit is at the same offset in
//                         both formats.
//   expert_bands          one expert's three matrices. It is cut into bands of 256 inner values; a
//                         band holds its rows of w1, its rows of w3 and its columns of w2, each as
//                         codes then scales. At K3's sizes a band is 357 pages of 4 KiB, so an
//                         expert can be split over devices by width without another format.
//   expert_bands_compact  the same with half a byte per mxfp4 scale, for files: compact_scales.h
//                         says how, and turns it into expert_bands for the kernels. A band of K3's
//                         is no whole number of pages.
// Planes start on 64-byte boundaries in blocks160. Bands follow each other without gaps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "schema/format.h"
#include "schema/formats/int8.h"
#include "schema/formats/mxfp4.h"
#include "schema/formats/ternary.h"
#include "schema/host_device.h"

namespace k3 {

// The values are on disk (pack.fbs). Append only.
enum class Layout : uint8_t {
  kRowMajor = 0,
  kBlocks160 = 1,
  kExpertBands = 2,
  kExpertBandsCompact = 3
};

inline constexpr std::array<std::string_view, 4> kLayoutNames = {
    "row_major", "blocks160", "expert_bands", "expert_bands_compact"};

inline std::string_view layout_name(Layout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

inline constexpr int64_t kBandInner = 256;      // inner values of a full band
inline constexpr int64_t kPlaneAlignment = 64;  // bytes

K3_HOST_DEVICE inline int64_t divide_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}
K3_HOST_DEVICE inline int64_t align_up(int64_t value, int64_t alignment) {
  return divide_up(value, alignment) * alignment;
}

// The formats of blocks160: integer codes, a multiplier per block, a scale per row.
K3_HOST_DEVICE constexpr bool lies_in_blocks160(Format format) {
  return format == Format::kInt8 || format == Format::kTernary || format == Format::kTernary2;
}

// Bytes of the codes of `cols` inputs of one row without padding, for the formats that pack rows
// tightly; 0 for those of blocks160. cols is even for mxfp4.
K3_HOST_DEVICE inline int64_t packed_row_bytes(Format format, int64_t cols) {
  switch (format) {
    case Format::kF32:
      return cols * 4;
    case Format::kBf16:
      return cols * 2;
    case Format::kMxfp4:
      return cols / 2;
    case Format::kInt8:
    case Format::kTernary:
    case Format::kTernary2:
      break;
  }
  return 0;
}

// blocks160: a [rows, cols] matrix. All offsets are bytes from the extent's start.
struct Blocks160 {
  Format format = Format::kInt8;
  int64_t rows = 0;
  int64_t cols = 0;

  K3_HOST_DEVICE int64_t blocks_per_row() const { return divide_up(cols, kBlockInputs); }
  K3_HOST_DEVICE int64_t block_bytes() const {
    return format == Format::kInt8 ? kBlockInputs : kTernaryBlockBytes;
  }
  K3_HOST_DEVICE int64_t row_stride_bytes() const { return blocks_per_row() * block_bytes(); }
  K3_HOST_DEVICE int64_t planes() const { return format == Format::kTernary2 ? 2 : 1; }
  K3_HOST_DEVICE int64_t plane_bytes() const { return rows * row_stride_bytes(); }
  K3_HOST_DEVICE int64_t plane_offset(int64_t plane) const {
    return plane * align_up(plane_bytes(), kPlaneAlignment);
  }
  // The byte with a code, or with its trit on place trit_place(col).
  K3_HOST_DEVICE int64_t code_offset(int64_t row, int64_t col, int64_t plane = 0) const {
    return plane_offset(plane) + row * row_stride_bytes() +
           (format == Format::kInt8 ? col : trit_byte(col));
  }
  K3_HOST_DEVICE int64_t multipliers_offset() const { return plane_offset(planes()); }
  K3_HOST_DEVICE int64_t multiplier_offset(int64_t row, int64_t col) const {
    return multipliers_offset() + row * blocks_per_row() + col / kBlockInputs;
  }
  K3_HOST_DEVICE int64_t row_scales_offset() const {
    return align_up(multipliers_offset() + rows * blocks_per_row(), kPlaneAlignment);
  }
  K3_HOST_DEVICE int64_t row_scale_offset(int64_t row) const {
    return row_scales_offset() + 4 * row;
  }
  K3_HOST_DEVICE int64_t extent_bytes() const { return row_scales_offset() + 4 * rows; }
};

enum class ExpertMatrix : uint8_t {
  kW1 = 0,
  kW3 = 1,
  kW2 = 2
};  // gate, up, down; the order inside a band

// expert_bands and expert_bands_compact: w1 and w3 are [inner, latent], w2 is [latent, inner].
// mxfp4 needs both widths to be multiples of 32.
struct ExpertBands {
  Format format = Format::kMxfp4;
  int64_t latent = 0;  // inputs of w1 and w3, outputs of w2
  int64_t inner = 0;   // moe_intermediate_size
  Layout layout = Layout::kExpertBands;

  // One matrix's part of one band: codes, then scales, both row-major and tightly packed.
  struct Part {
    int64_t codes_offset = 0;   // bytes from the extent's start
    int64_t scales_offset = 0;  // bytes from the extent's start
    int64_t rows = 0;
    int64_t cols = 0;
  };

  K3_HOST_DEVICE int64_t bands() const { return divide_up(inner, kBandInner); }
  K3_HOST_DEVICE int64_t band_inner(int64_t band) const {
    const int64_t left = inner - band * kBandInner;
    return left < kBandInner ? left : kBandInner;
  }
  K3_HOST_DEVICE int64_t scales_per_row(int64_t cols) const {
    return format == Format::kMxfp4 ? cols / kMxfp4GroupInputs : 0;
  }
  // Rows of a part are a multiple of 32, so half bytes come out even.
  K3_HOST_DEVICE int64_t scale_bytes(int64_t rows, int64_t cols) const {
    const int64_t scales = rows * scales_per_row(cols);
    return layout == Layout::kExpertBandsCompact ? scales / 2 : scales;
  }
  K3_HOST_DEVICE int64_t part_bytes(int64_t rows, int64_t cols) const {
    return rows * packed_row_bytes(format, cols) + scale_bytes(rows, cols);
  }
  K3_HOST_DEVICE int64_t band_bytes(int64_t band) const {
    return 2 * part_bytes(band_inner(band), latent) + part_bytes(latent, band_inner(band));
  }
  // All bands but the last are full, so a band's start needs no sum.
  K3_HOST_DEVICE int64_t band_offset(int64_t band) const {
    return band * (2 * part_bytes(kBandInner, latent) + part_bytes(latent, kBandInner));
  }
  K3_HOST_DEVICE int64_t extent_bytes() const {
    return bands() == 0 ? 0 : band_offset(bands() - 1) + band_bytes(bands() - 1);
  }
  K3_HOST_DEVICE Part part(int64_t band, ExpertMatrix matrix) const {
    const int64_t width = band_inner(band);
    Part part;
    part.rows = matrix == ExpertMatrix::kW2 ? latent : width;
    part.cols = matrix == ExpertMatrix::kW2 ? width : latent;
    part.codes_offset =
        band_offset(band) + static_cast<int64_t>(matrix) * part_bytes(width, latent);
    part.scales_offset = part.codes_offset + part.rows * packed_row_bytes(format, part.cols);
    return part;
  }
};

}  // namespace k3
