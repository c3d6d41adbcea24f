// Random matrices of every format with the codes and scales that break careless kernels, and random
// activations to go with them.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "schema/format.h"
#include "schema/formats/bf16.h"
#include "schema/formats/int8.h"
#include "schema/formats/mxfp4.h"
#include "schema/formats/ternary.h"
#include "schema/layout.h"
#include "schema/matrix_view.h"

namespace k3 {

using Random = std::mt19937_64;

inline int64_t random_below(Random& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

// Zeros that start on a 64-byte boundary, as extents do.
class ZeroedBytes {
 public:
  ZeroedBytes() = default;
  explicit ZeroedBytes(int64_t bytes) : lines_(static_cast<size_t>(divide_up(bytes, 64))) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

// Fills the codes and scales of one mxfp4 part and returns its least exponent. The exponents span
// `span` from `least`; one group in eight is all zeros, of both signs, with any scale below.
inline int fill_mxfp4(Random& random, int64_t groups, int least, int span, std::byte* codes,
                      std::byte* scales) {
  for (int64_t g = 0; g < groups; ++g) {
    const bool zero = random_below(random, 8) == 0 && g != 0;
    for (int64_t i = 0; i < kMxfp4GroupInputs / 2; ++i) {
      const auto byte = static_cast<uint8_t>(random());
      codes[g * kMxfp4GroupInputs / 2 + i] = static_cast<std::byte>(zero ? byte & 0x88 : byte);
    }
    const int64_t scale = zero ? random_below(random, least + 1)
                               : least + (g == 0 ? 0 : random_below(random, span + 1));
    scales[g] = static_cast<std::byte>(scale);
    if (g == 0) codes[0] = std::byte{0x21};  // not all zero, so that it really has the least
  }
  return least;
}

inline float random_weight(Random& random) {
  return std::ldexp(std::normal_distribution<float>(0, 1)(random),
                    static_cast<int>(random_below(random, 12)) - 10);
}

// A matrix and the bytes it views.
struct RandomMatrix {
  ZeroedBytes bytes;
  MatrixView view;

  RandomMatrix(Random& random, Format format, int64_t rows, int64_t cols) {
    if (format == Format::kMxfp4) {
      const int64_t groups = rows * cols / kMxfp4GroupInputs;
      bytes = ZeroedBytes(groups * 17);
      std::byte* scales = bytes.data() + groups * 16;
      view = {.format = format,
              .rows = rows,
              .cols = cols,
              .codes = bytes.data(),
              .row_stride_bytes = cols / 2,
              .scales = reinterpret_cast<const uint8_t*>(scales),
              .scales_per_row = cols / kMxfp4GroupInputs,
              .row_scales = nullptr};
      view.least_exponent = fill_mxfp4(random, groups, 110, 16, bytes.data(), scales);
      return;
    }
    if (lies_in_blocks160(format)) {
      const Blocks160 place{format, rows, cols};
      bytes = ZeroedBytes(place.extent_bytes());
      view = view_matrix(format, rows, cols, bytes.data());
      set_codes(random, place);
      set_scales(random, place);
      return;
    }
    bytes = ZeroedBytes(rows * packed_row_bytes(format, cols));
    view = view_matrix(format, rows, cols, bytes.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) set_random(random, r, c);
    }
  }

 private:
  void set_random(Random& random, int64_t row, int64_t col) {
    std::byte* codes = bytes.data() + row * view.row_stride_bytes;
    const float weight = random_weight(random);
    const uint16_t bf16 = encode_bf16(weight);
    if (view.format == Format::kF32) std::memcpy(codes + 4 * col, &weight, 4);
    if (view.format == Format::kBf16) std::memcpy(codes + 2 * col, &bf16, 2);
  }

  // The padding is zero in a sound pack, but no kernel may rely on it.
  void set_codes(Random& random, const Blocks160& place) {
    for (int64_t plane = 0; plane < place.planes(); ++plane) {
      std::byte* codes = bytes.data() + place.plane_offset(plane);
      for (int64_t i = 0; i < place.plane_bytes(); ++i) {
        codes[i] = place.format == Format::kInt8
                       ? static_cast<std::byte>(random_below(random, 255) - 127)
                       : std::byte{encode_five_trits(static_cast<int>(random_below(random, 243)))};
      }
    }
  }

  void set_scales(Random& random, const Blocks160& place) {
    for (int64_t r = 0; r < view.rows; ++r) {
      for (int64_t b = 0; b < place.blocks_per_row(); ++b) {
        bytes.data()[place.multiplier_offset(r, b * kBlockInputs)] =
            static_cast<std::byte>(random());
      }
      const float scale = std::fabs(random_weight(random));
      std::memcpy(bytes.data() + place.row_scale_offset(r), &scale, 4);
    }
  }
};

// [tokens, cols] activations. By token: normal, one outlier, all at +-32639 steps, low bytes 0x80,
// zero, subnormal, and magnitudes from one end of float to the other.
inline std::vector<float> random_activations(Random& random, int64_t tokens, int64_t cols) {
  std::vector<float> x;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < cols; ++c) {
      const float value = std::normal_distribution<float>(0, 1)(random);
      const float sign = random() % 2 == 0 ? 1.0F : -1.0F;
      switch (t % 7) {
        case 0:
          x.push_back(value);
          break;
        case 1:
          x.push_back(c == cols / 2 ? 100.0F : value);
          break;
        case 2:
          x.push_back(sign * std::ldexp(32639.0F, -20));
          break;
        case 3:
          x.push_back(c == 0 ? 32639.0F
                             : sign * static_cast<float>(256 * random_below(random, 127) + 128));
          break;
        case 4:
          x.push_back(sign * 0.0F);
          break;
        case 5:
          x.push_back(std::ldexp(value, -140));
          break;
        default:
          x.push_back(std::ldexp(value, static_cast<int>(random_below(random, 240)) - 149));
      }
    }
  }
  return x;
}

inline std::string name_case(Format format, int64_t rows, int64_t cols, int64_t tokens) {
  return std::string(format_name(format)) + " [" + std::to_string(rows) + ", " +
         std::to_string(cols) + "], " + std::to_string(tokens) + " tokens";
}

}  // namespace k3
