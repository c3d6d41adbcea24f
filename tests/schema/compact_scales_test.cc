#include "schema/compact_scales.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace k3 {
namespace {

constexpr std::array<uint8_t, 3> kBase = {100, 239, 0};

// An extent with random codes and scales of base to base + 15, each value somewhere.
std::vector<std::byte> random_expert(const ExpertBands& place) {
  std::mt19937 random(5);
  std::vector<std::byte> extent(static_cast<size_t>(place.extent_bytes()));
  for (std::byte& byte : extent) byte = static_cast<std::byte>(random() & 255u);
  for (int64_t band = 0; band < place.bands(); ++band) {
    for (size_t matrix = 0; matrix < 3; ++matrix) {
      const auto part = place.part(band, static_cast<ExpertMatrix>(matrix));
      for (int64_t i = 0; i < place.scale_bytes(part.rows, part.cols); ++i) {
        extent[static_cast<size_t>(part.scales_offset + i)] =
            static_cast<std::byte>(kBase[matrix] + random() % (kCompactSpan + 1));
      }
    }
  }
  return extent;
}

std::vector<std::byte> compacted(const ExpertBands& place, std::vector<std::byte> extent) {
  std::vector<std::byte> compact;
  for (int64_t band = 0; band < place.bands(); ++band) {
    const auto bytes = std::span(extent).subspan(static_cast<size_t>(place.band_offset(band)),
                                                 static_cast<size_t>(place.band_bytes(band)));
    const auto shrunk = compact_band(place, band, kBase, bytes);
    compact.insert(compact.end(), shrunk.begin(), shrunk.end());
  }
  return compact;
}

TEST(CompactScales, ExpandToWhatWasCompacted) {
  for (const int64_t latent : {32, 96}) {
    for (const int64_t inner : {32, 224, 256, 288, 800}) {
      const ExpertBands place{Format::kMxfp4, latent, inner};
      const auto extent = random_expert(place);
      const auto compact = compacted(place, extent);
      const ExpertBands stored{Format::kMxfp4, latent, inner, Layout::kExpertBandsCompact};
      ASSERT_EQ(static_cast<int64_t>(compact.size()), stored.extent_bytes());
      std::vector<std::byte> expanded(extent.size());
      expand_scales(place, kBase, compact, expanded);
      EXPECT_EQ(expanded, extent) << latent << " x " << inner;
    }
  }
}

// By the formula of schema/README.md, not through ExpertBands.
TEST(CompactScales, TheFirstOfTwoScalesIsTheLowNibble) {
  const ExpertBands place{Format::kMxfp4, 32, 32};
  std::vector<std::byte> extent(static_cast<size_t>(place.extent_bytes()));
  constexpr size_t kCodes = 32 * 16;
  for (size_t i = 0; i < 32; ++i) {
    extent[kCodes + i] = static_cast<std::byte>(kBase[0] + i % 16);
    extent[2 * kCodes + 32 + i] = static_cast<std::byte>(kBase[1]);
  }
  const auto compact = compacted(place, extent);
  EXPECT_EQ(compact[kCodes], std::byte{0x10});
  EXPECT_EQ(compact[kCodes + 7], std::byte{0xfe});
  EXPECT_EQ(compact[2 * kCodes + 16], std::byte{0x00});
}

}  // namespace
}  // namespace k3
