#include "schema/compact_scales.h"

#include <cstring>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr std::array<ExpertMatrix, 3> kMatrices = {ExpertMatrix::kW1, ExpertMatrix::kW3,
                                                   ExpertMatrix::kW2};

ExpertBands compact_place(ExpertBands place) {
  K3_CHECK(place.format == Format::kMxfp4 && place.layout == Layout::kExpertBands);
  place.layout = Layout::kExpertBandsCompact;
  return place;
}

}  // namespace

void expand_scales(const ExpertBands& place, const std::array<uint8_t, 3>& base,
                   std::span<const std::byte> compact, std::span<std::byte> expanded) {
  const ExpertBands from = compact_place(place);
  K3_CHECK(static_cast<int64_t>(compact.size()) == from.extent_bytes() &&
           static_cast<int64_t>(expanded.size()) == place.extent_bytes());
  for (int64_t band = 0; band < place.bands(); ++band) {
    for (const ExpertMatrix matrix : kMatrices) {
      const ExpertBands::Part src = from.part(band, matrix);
      const ExpertBands::Part dst = place.part(band, matrix);
      std::memcpy(expanded.data() + dst.codes_offset, compact.data() + src.codes_offset,
                  static_cast<size_t>(dst.scales_offset - dst.codes_offset));
      const auto* pairs = reinterpret_cast<const uint8_t*>(compact.data() + src.scales_offset);
      auto* scales = reinterpret_cast<uint8_t*>(expanded.data() + dst.scales_offset);
      const unsigned least = base[static_cast<size_t>(matrix)];
      const int64_t count = from.scale_bytes(src.rows, src.cols);
      for (int64_t i = 0; i < count; ++i) {
        scales[2 * i] = static_cast<uint8_t>(least + (pairs[i] & 15u));
        scales[2 * i + 1] = static_cast<uint8_t>(least + (pairs[i] >> 4));
      }
    }
  }
}

// Parts move towards the band's start only, so a part is read before anything is written over it.
std::span<std::byte> compact_band(const ExpertBands& place, int64_t band,
                                  const std::array<uint8_t, 3>& base, std::span<std::byte> bytes) {
  const ExpertBands to = compact_place(place);
  K3_CHECK(static_cast<int64_t>(bytes.size()) == place.band_bytes(band));
  const std::byte* const start = bytes.data();
  std::byte* write = bytes.data();
  for (const ExpertMatrix matrix : kMatrices) {
    const ExpertBands::Part part = place.part(band, matrix);
    const auto codes_bytes = static_cast<size_t>(part.scales_offset - part.codes_offset);
    const int64_t codes_at = part.codes_offset - place.band_offset(band);
    std::memmove(write, start + codes_at, codes_bytes);
    write += codes_bytes;
    const auto* scales =
        reinterpret_cast<const uint8_t*>(start + codes_at + static_cast<int64_t>(codes_bytes));
    const uint8_t least = base[static_cast<size_t>(matrix)];
    const int64_t count = to.scale_bytes(part.rows, part.cols);
    for (int64_t i = 0; i < count; ++i) {
      const int low = scales[2 * i] - least;
      const int high = scales[2 * i + 1] - least;
      K3_CHECK(low >= 0 && low <= kCompactSpan && high >= 0 && high <= kCompactSpan);
      *write++ = static_cast<std::byte>(low | high << 4);
    }
  }
  return bytes.first(static_cast<size_t>(write - bytes.data()));
}

}  // namespace k3
