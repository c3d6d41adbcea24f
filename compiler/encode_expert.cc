#include "compiler/encode_expert.h"

#include <algorithm>

#include "schema/error.h"
#include "schema/mxfp4_scales.h"

namespace k3 {
namespace {

constexpr std::array<ExpertMatrix, 3> kMatrices = {ExpertMatrix::kW1, ExpertMatrix::kW3,
                                                   ExpertMatrix::kW2};
constexpr std::array<const char*, 3> kMatrixNames = {"w1", "w3", "w2"};

struct MatrixSize {
  int64_t rows;
  int64_t cols;
};

MatrixSize size_of(const ExpertBands& place, ExpertMatrix matrix) {
  if (matrix == ExpertMatrix::kW2) return {place.latent, place.inner};
  return {place.inner, place.latent};
}

// Copies the [rows, width] bytes at (first_row, first_byte) of a plane with rows of src_stride.
void copy_block(std::span<const std::byte> src, int64_t src_stride, int64_t first_row,
                int64_t first_byte, int64_t rows, int64_t width, std::byte* dst) {
  if (width == src_stride) {  // whole rows are one piece
    std::copy_n(src.data() + first_row * src_stride, rows * width, dst);
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* from = src.data() + (first_row + row) * src_stride + first_byte;
    std::copy_n(from, width, dst + row * width);  // width 0 for a format without scales
  }
}

}  // namespace

ExpertSourceBytes expert_source_bytes(const ExpertBands& place, ExpertMatrix matrix) {
  const auto [rows, cols] = size_of(place, matrix);
  return {rows * packed_row_bytes(place.format, cols), rows * place.scales_per_row(cols)};
}

void permute_band(const ExpertBands& place, int64_t band, const ExpertSources& sources,
                  std::span<std::byte> bytes) {
  K3_CHECK(static_cast<int64_t>(bytes.size()) == place.band_bytes(band));
  const int64_t band_offset = place.band_offset(band);
  const int64_t first_inner = band * kBandInner;
  for (const ExpertMatrix matrix : kMatrices) {
    const ExpertSource& source = sources[static_cast<size_t>(matrix)];
    const ExpertBands::Part part = place.part(band, matrix);
    const int64_t cols = size_of(place, matrix).cols;
    // A band takes whole rows of w1 and w3, and of every row of w2 the columns of its inner values.
    const bool by_column = matrix == ExpertMatrix::kW2;
    const int64_t first_row = by_column ? 0 : first_inner;
    const int64_t first_col = by_column ? first_inner : 0;
    copy_block(source.codes, packed_row_bytes(place.format, cols), first_row,
               packed_row_bytes(place.format, first_col), part.rows,
               packed_row_bytes(place.format, part.cols),
               bytes.data() + (part.codes_offset - band_offset));
    copy_block(source.scales, place.scales_per_row(cols), first_row,
               place.scales_per_row(first_col), part.rows, place.scales_per_row(part.cols),
               bytes.data() + (part.scales_offset - band_offset));
  }
}

std::array<uint8_t, 3> least_exponents(const ExpertBands& place, const ExpertSources& sources,
                                       const std::string& subject) {
  std::array<uint8_t, 3> least{};
  if (place.format != Format::kMxfp4) return least;
  for (const ExpertMatrix matrix : kMatrices) {
    const auto slot = static_cast<size_t>(matrix);
    const auto [rows, cols] = size_of(place, matrix);
    ScaleRange range;
    const ScaleFault fault =
        scan_scales(reinterpret_cast<const uint8_t*>(sources[slot].codes.data()),
                    reinterpret_cast<const uint8_t*>(sources[slot].scales.data()), rows,
                    place.scales_per_row(cols), range);
    if (fault.found) {
      throw Error(subject, ".", kMatrixNames[slot], ": scale at row ", fault.row, ", group ",
                  fault.group, " is ", static_cast<int>(fault.scale),
                  fault.scale == 0 ? ", which only an all-zero group may have"
                                   : " (NaN), expected at most 254");
    }
    if (range.span() > kLargestScaleSpan) {
      throw Error(subject, ".", kMatrixNames[slot], ": scales span ", range.span(), " exponents (",
                  static_cast<int>(range.least), " to ", static_cast<int>(range.greatest),
                  "), at most ", kLargestScaleSpan, " fit the exact sums");
    }
    least[slot] = range.least;
  }
  return least;
}

}  // namespace k3
