#include "schema/layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace k3 {
namespace {

// Marks ranges of an extent and fails on a second mark: what is left tells padding.
class Marks {
 public:
  explicit Marks(int64_t bytes) : nibbles_(static_cast<size_t>(2 * bytes)) {}
  void mark_bytes(int64_t offset, int64_t bytes) { mark_nibbles(2 * offset, 2 * bytes); }
  void mark_nibbles(int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      ASSERT_GE(i, 0);
      ASSERT_LT(static_cast<size_t>(i), nibbles_.size()) << "outside the extent";
      ASSERT_FALSE(nibbles_[static_cast<size_t>(i)]) << "nibble " << i << " is used twice";
      nibbles_[static_cast<size_t>(i)] = true;
    }
  }
  int64_t unused_bytes() const {
    int64_t unused = 0;
    for (const bool used : nibbles_) unused += used ? 0 : 1;
    return unused / 2;
  }

 private:
  std::vector<bool> nibbles_;
};

TEST(Blocks160, EveryCodeAndScaleHasItsOwnPlace) {
  for (const int64_t rows : {1, 2, 7, 64}) {
    for (const int64_t cols : {1, 159, 160, 161, 320, 500}) {
      const Blocks160 place{rows, cols};
      Marks marks(place.extent_bytes());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) marks.mark_bytes(place.code_offset(row, col), 1);
        for (int64_t col = 0; col < cols; col += kBlockInputs) {
          marks.mark_bytes(place.multiplier_offset(row, col), 1);
          EXPECT_EQ(place.multiplier_offset(row, col),
                    place.multiplier_offset(row, std::min(col + kBlockInputs, cols) - 1));
        }
        marks.mark_bytes(place.row_scale_offset(row), 4);
      }
      const int64_t padding_codes = rows * (place.row_stride_bytes() - cols);
      EXPECT_LT(marks.unused_bytes() - padding_codes, 2 * kPlaneAlignment);
      EXPECT_EQ(place.multipliers_offset() % kPlaneAlignment, 0);
      EXPECT_EQ(place.row_scales_offset() % kPlaneAlignment, 0);
    }
  }
}

TEST(Blocks160, HoldsItsRateAtK3sWidths) {
  const Blocks160 place{12288, 7168};
  const double bits = 8.0 * static_cast<double>(place.extent_bytes()) / (12288.0 * 7168.0);
  EXPECT_NEAR(bits, 8.09, 0.01);
}

// Every element's nibble (or bf16 pair) and every group's scale byte, by the formula of the
// document: band, then matrix, then codes, then scales.
void expect_bijection(Format format, int64_t latent, int64_t inner) {
  const ExpertBands place{format, latent, inner};
  Marks marks(place.extent_bytes());
  for (int64_t band = 0; band < place.bands(); ++band) {
    for (const auto matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
      const ExpertBands::Part part = place.part(band, matrix);
      EXPECT_EQ(part.rows, matrix == ExpertMatrix::kW2 ? latent : place.band_inner(band));
      EXPECT_EQ(part.cols, matrix == ExpertMatrix::kW2 ? place.band_inner(band) : latent);
      for (int64_t row = 0; row < part.rows; ++row) {
        const int64_t start = part.codes_offset + row * packed_row_bytes(format, part.cols);
        for (int64_t col = 0; col < part.cols; ++col) {
          if (format == Format::kMxfp4) {
            marks.mark_nibbles(2 * start + col, 1);
          } else {
            marks.mark_bytes(start + 2 * col, 2);
          }
        }
        marks.mark_bytes(part.scales_offset + row * place.scales_per_row(part.cols),
                         place.scales_per_row(part.cols));
      }
    }
  }
  EXPECT_EQ(marks.unused_bytes(), 0) << latent << " x " << inner;
}

TEST(ExpertBands, EveryCodeAndScaleHasItsOwnPlaceAndNoByteIsLeft) {
  for (const int64_t latent : {32, 96}) {
    for (const int64_t inner : {32, 64, 224, 256, 288, 512, 800}) {
      expect_bijection(Format::kMxfp4, latent, inner);
      expect_bijection(Format::kBf16, latent, inner);
    }
  }
  expect_bijection(Format::kBf16, 5, 257);  // bf16 needs no multiples of 32
}

TEST(ExpertBands, InnerValuesOfABandAreConsecutive) {
  const ExpertBands place{Format::kMxfp4, 64, 800};
  EXPECT_EQ(place.bands(), 4);
  EXPECT_EQ(place.band_inner(0), 256);
  EXPECT_EQ(place.band_inner(3), 32);
  EXPECT_EQ(place.band_offset(3), place.extent_bytes() - place.band_bytes(3));
}

TEST(ExpertBands, AnExpertOfK3Is12BandsOf357Pages) {
  const ExpertBands place{Format::kMxfp4, 3584, 3072};
  EXPECT_EQ(place.bands(), 12);
  EXPECT_EQ(place.band_bytes(0), 357 * 4096);
  EXPECT_EQ(place.extent_bytes(), 17'547'264);
}

}  // namespace
}  // namespace k3
