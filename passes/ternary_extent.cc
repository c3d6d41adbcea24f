#include "passes/ternary_extent.h"

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "schema/block_codes.h"
#include "schema/error.h"
#include "schema/little_endian.h"

namespace k3 {

std::vector<std::byte> ternary_extent(const Blocks160& place, const TernaryCodes& codes) {
  K3_CHECK(codes.rows == place.rows && codes.cols == place.cols);
  std::vector<std::byte> bytes(static_cast<size_t>(place.extent_bytes()));
  const auto at = [&](int64_t offset, int64_t length) {
    return std::span(reinterpret_cast<uint8_t*>(bytes.data()) + offset,
                     static_cast<size_t>(length));
  };
  std::vector<int8_t> row_codes(static_cast<size_t>(place.blocks_per_row() * kBlockInputs));
  for (int64_t row = 0; row < place.rows; ++row) {
    const float scale =
        codes.copy_row(row, row_codes, at(place.multiplier_offset(row, 0), place.blocks_per_row()));
    std::array<std::span<uint8_t>, 2> planes = {
        at(place.code_offset(row, 0), place.row_stride_bytes()), {}};
    if (place.planes() == 2) planes[1] = at(place.code_offset(row, 0, 1), place.row_stride_bytes());
    pack_ternary_row(place.format, row_codes, planes);
    store_little_endian(std::bit_cast<uint32_t>(scale), bytes.data() + place.row_scale_offset(row));
  }
  return bytes;
}

}  // namespace k3
