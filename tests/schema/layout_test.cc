#include "schema/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
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

// Each code's byte once for int8, five trits' byte once for a ternary plane, and every scale.
void expect_blocks_bijection(const Blocks160& place) {
  Marks marks(place.extent_bytes());
  const bool trits = place.format != Format::kInt8;
  std::set<std::pair<int64_t, int>> places;
  for (int64_t row = 0; row < place.rows; ++row) {
    for (int64_t plane = 0; plane < place.planes(); ++plane) {
      for (int64_t col = 0; col < place.cols; ++col) {
        const int64_t byte = place.code_offset(row, col, plane);
        const bool is_new = places.insert({byte, trits ? trit_place(col) : 0}).second;
        ASSERT_TRUE(is_new) << "row " << row << ", column " << col << ", plane " << plane;
        if (!trits || trit_place(col) == 0) marks.mark_bytes(byte, 1);
      }
    }
    for (int64_t col = 0; col < place.cols; col += kBlockInputs) {
      marks.mark_bytes(place.multiplier_offset(row, col), 1);
      const int64_t last = std::min(col + kBlockInputs, place.cols) - 1;
      EXPECT_EQ(place.multiplier_offset(row, col), place.multiplier_offset(row, last));
    }
    marks.mark_bytes(place.row_scale_offset(row), 4);
  }
  const int64_t tail = place.cols % kBlockInputs;
  const int64_t tail_bytes = trits ? std::min(tail, kTernaryBlockBytes) : tail;
  const int64_t unused_in_row = tail == 0 ? 0 : place.block_bytes() - tail_bytes;
  EXPECT_LT(marks.unused_bytes() - place.rows * place.planes() * unused_in_row,
            (place.planes() + 1) * kPlaneAlignment);
  for (int64_t plane = 0; plane <= place.planes(); ++plane) {
    EXPECT_EQ(place.plane_offset(plane) % kPlaneAlignment, 0);
  }
  EXPECT_EQ(place.multipliers_offset(), place.plane_offset(place.planes()));
  EXPECT_EQ(place.row_scales_offset() % kPlaneAlignment, 0);
}

TEST(Blocks160, EveryCodeAndScaleHasItsOwnPlace) {
  for (const Format format : {Format::kInt8, Format::kTernary, Format::kTernary2}) {
    for (const int64_t rows : {1, 2, 7, 64}) {
      for (const int64_t cols : {1, 31, 32, 33, 159, 160, 161, 319, 320, 500}) {
        expect_blocks_bijection({format, rows, cols});
      }
    }
  }
}

TEST(Blocks160, BothPlanesOfTernary2HaveTheGeometryOfTernary) {
  const Blocks160 one{Format::kTernary, 3, 500};
  const Blocks160 two{Format::kTernary2, 3, 500};
  EXPECT_EQ(two.row_stride_bytes(), one.row_stride_bytes());
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t col = 0; col < 500; ++col) {
      EXPECT_EQ(two.code_offset(row, col, 0), one.code_offset(row, col));
      EXPECT_EQ(two.code_offset(row, col, 1) - two.plane_offset(1), one.code_offset(row, col));
    }
  }
}

// Stored bytes x 8 / weights: 1.6 for five trits a byte, 0.45 % of padding to 45 blocks, 8 / 160
// for the multipliers and 32 / 7168 for the row scales.
TEST(Blocks160, HoldsItsRateAtK3sWidths) {
  const auto bits = [](Format format) {
    const Blocks160 place{format, 12288, 7168};
    return 8.0 * static_cast<double>(place.extent_bytes()) / (12288.0 * 7168.0);
  };
  EXPECT_NEAR(bits(Format::kInt8), 8.09, 0.01);
  const double one = (45 * 32 * 8 + 45 * 8 + 32) / 7168.0;
  EXPECT_NEAR(bits(Format::kTernary), one, 1e-5);
  EXPECT_NEAR(bits(Format::kTernary), 1.662, 0.0005);
  const double two = (2 * 45 * 32 * 8 + 45 * 8 + 32) / 7168.0;
  EXPECT_NEAR(bits(Format::kTernary2), two, 1e-5);
  EXPECT_NEAR(bits(Format::kTernary2), 3.269, 0.0005);
}

// Every element's nibble (or bf16 pair) and every group's scale byte, by the formula of the
// document: band, then matrix, then codes, then scales.
void expect_bijection(Format format, int64_t latent, int64_t inner,
                      Layout layout = Layout::kExpertBands) {
  const ExpertBands place{format, latent, inner, layout};
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
        const int64_t groups = place.scales_per_row(part.cols);
        const int64_t nibbles = layout == Layout::kExpertBandsCompact ? 1 : 2;  // a scale
        marks.mark_nibbles(2 * part.scales_offset + nibbles * row * groups, nibbles * groups);
      }
    }
  }
  EXPECT_EQ(marks.unused_bytes(), 0) << latent << " x " << inner;
}

TEST(ExpertBands, EveryCodeAndScaleHasItsOwnPlaceAndNoByteIsLeft) {
  for (const int64_t latent : {32, 96}) {
    for (const int64_t inner : {32, 64, 224, 256, 288, 512, 800}) {
      expect_bijection(Format::kMxfp4, latent, inner);
      expect_bijection(Format::kMxfp4, latent, inner, Layout::kExpertBandsCompact);
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

TEST(ExpertBands, ACompactExpertOfK3HasHalfTheScaleBytes) {
  const ExpertBands place{Format::kMxfp4, 3584, 3072, Layout::kExpertBandsCompact};
  EXPECT_EQ(place.extent_bytes(), 17'031'168);
}

}  // namespace
}  // namespace k3
