#include "kernels/activation_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "schema/format.h"

namespace k3 {
namespace {

constexpr Format kFormats[] = {Format::kInt8, Format::kMxfp4, Format::kTernary, Format::kTernary2};

TEST(ActivationTiles, GiveEveryInputOnePlaceInEachPlane) {
  for (const Format format : kFormats) {
    for (const int64_t cols : {32, 160, 544, 7168}) {
      const ActivationTiles place{.format = format, .cols = cols};
      std::set<int64_t> inputs;
      std::set<int64_t> offsets;
      for (int64_t chunk = 0; chunk < place.chunks(); ++chunk) {
        for (int64_t piece = 0; piece < place.pieces(); ++piece) {
          for (int64_t i = 0; i < kPieceInputs; ++i) {
            EXPECT_TRUE(inputs.insert(place.piece_input(chunk, piece) + i).second);
          }
          for (const int plane : {0, 1}) {
            const int64_t offset = place.piece_offset(chunk, piece, plane);
            EXPECT_EQ(offset % kChunkBytes, 0);
            EXPECT_LE(offset + kChunkBytes, place.sums_offset());
            EXPECT_TRUE(offsets.insert(offset).second);
          }
        }
      }
      // All inputs, and those of the padding of the last block.
      EXPECT_EQ(*inputs.begin(), 0);
      EXPECT_EQ(*inputs.rbegin() + 1, std::ssize(inputs));
      EXPECT_GE(std::ssize(inputs), cols) << format_name(format);
      EXPECT_EQ(place.vector_bytes() % 16, 0);
    }
  }
}

// Chunk c's bytes of a row hold just the inputs that its pieces name.
TEST(ActivationTiles, PiecesAreTheInputsOfAChunksBytes) {
  for (int64_t input = 0; input < 640; ++input) {
    const auto holds = [input](Format format, int64_t chunk, int64_t piece) {
      const ActivationTiles place{.format = format, .cols = 640};
      const int64_t first = place.piece_input(chunk, piece);
      return first <= input && input < first + kPieceInputs;
    };
    EXPECT_TRUE(holds(Format::kInt8, input / 16, 0));
    EXPECT_TRUE(holds(Format::kMxfp4, input / 2 / 16, input % 32 / 16));
    EXPECT_TRUE(holds(Format::kTernary, trit_byte(input) / 16, trit_place(input)));
  }
}

TEST(ActivationTiles, ALanesPiecesLieAtFixedDistances) {
  for (const Format format : kFormats) {
    const ActivationTiles place{.format = format, .cols = 7168};
    for (int64_t step = 0; step < 3; ++step) {
      for (int64_t piece = 0; piece < place.pieces(); ++piece) {
        for (const int plane : {0, 1}) {
          EXPECT_EQ(place.piece_offset(32 * step + 7, piece, plane),
                    16 * 7 + step * ActivationTiles::step_bytes(format) +
                        (2 * piece + plane) * kTileBytes);
        }
      }
    }
  }
}

TEST(ActivationTiles, LanesOfAWarpReadOneRangeOf512Bytes) {
  for (const Format format : kFormats) {
    const ActivationTiles place{.format = format, .cols = 7168};
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      EXPECT_EQ(place.piece_offset(32 + lane, 0, 1),
                place.piece_offset(32, 0, 0) + kTileBytes + 16 * lane);
    }
  }
}

TEST(ActivationCodeInFloat, IsTheExactCodeForEveryExponent) {
  std::mt19937 random(1);
  for (int exponent = -163; exponent <= 114; ++exponent) {
    const double inverse_step = power_of_two(-exponent);
    for (int i = 0; i < 2000; ++i) {
      // Codes of all sizes, with ties, and values far below one.
      const auto code = static_cast<double>(static_cast<int>(random() % 65279) - 32639);
      const double offset = i % 4 == 0 ? 0.5 : static_cast<double>(random()) * 0x1p-32;
      const double size = i % 7 == 0 ? std::ldexp(code, -static_cast<int>(random() % 40)) : code;
      const double within = std::clamp(size + offset, -32639.0, 32639.0);
      const auto x = static_cast<float>(std::ldexp(within, exponent));
      if (std::fabs(static_cast<double>(x) * inverse_step) > kMaxActivationCode) continue;
      if (!std::isfinite(x)) continue;
      ASSERT_EQ(activation_code_in_float(x, exponent), exact_activation_code(x, inverse_step))
          << x << " with exponent " << exponent;
    }
    for (const float x : {0x1p-149F, -0x1p-149F, 0x1p-126F, 0.0F, -0.0F}) {
      if (std::fabs(static_cast<double>(x) * inverse_step) > kMaxActivationCode) continue;
      ASSERT_EQ(activation_code_in_float(x, exponent), exact_activation_code(x, inverse_step));
    }
  }
}

}  // namespace
}  // namespace k3
