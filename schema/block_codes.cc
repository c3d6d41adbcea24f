#include "schema/block_codes.h"

#include <algorithm>
#include <vector>

#include "schema/error.h"
#include "schema/formats/ternary.h"

namespace k3 {

int largest_code(Format format) {
  constexpr int kLargestInt8Code = 127;
  K3_CHECK(lies_in_blocks160(format));
  return format == Format::kInt8 ? kLargestInt8Code : largest_ternary_code(format);
}

void pack_ternary_row(Format format, std::span<int8_t> codes,
                      std::array<std::span<uint8_t>, 2> planes) {
  if (format == Format::kTernary2) {
    std::vector<int8_t> seconds(codes.begin(), codes.end());
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<int8_t>(first_trit(codes[i]));
      seconds[i] = static_cast<int8_t>(seconds[i] - 3 * codes[i]);
    }
    pack_trits(seconds, planes[1]);
  }
  pack_trits(codes, planes[0]);
}

void pack_codes(const Blocks160& place, std::span<const int8_t> codes,
                std::span<std::byte> planes) {
  K3_CHECK(std::ssize(codes) == place.rows * place.cols);
  K3_CHECK(std::ssize(planes) == place.multipliers_offset());
  std::ranges::fill(planes, std::byte{0});
  std::vector<int8_t> padded(static_cast<size_t>(place.blocks_per_row() * kBlockInputs));
  const auto cols = static_cast<size_t>(place.cols);
  const auto bytes_of = [&](int64_t row, int64_t plane) {
    return std::span(reinterpret_cast<uint8_t*>(planes.data()) + place.code_offset(row, 0, plane),
                     static_cast<size_t>(place.row_stride_bytes()));
  };
  for (int64_t row = 0; row < place.rows; ++row) {
    std::ranges::copy(codes.subspan(static_cast<size_t>(row) * cols, cols), padded.begin());
    std::fill(padded.begin() + place.cols, padded.end(), int8_t{0});
    if (place.format == Format::kInt8) {
      std::ranges::copy(padded, bytes_of(row, 0).begin());
      continue;
    }
    std::array<std::span<uint8_t>, 2> rows = {bytes_of(row, 0), {}};
    if (place.planes() == 2) rows[1] = bytes_of(row, 1);
    pack_ternary_row(place.format, padded, rows);
  }
}

}  // namespace k3
