#include "kernels/matmul.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/embedding.h"
#include "tests/kernels/bit_equality.h"
#include "tests/kernels/decoded_weight.h"
#include "tests/kernels/forced_target.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

constexpr Format kFormats[] = {Format::kF32,   Format::kBf16,    Format::kInt8,
                               Format::kMxfp4, Format::kTernary, Format::kTernary2};

using Matmul = void (*)(const MatrixView&, const float*, int64_t, float*);

std::vector<float> run(Matmul matmul, const MatrixView& weights, const std::vector<float>& x) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / weights.cols;
  std::vector<float> y(static_cast<size_t>(tokens * weights.rows), -1.0F);
  matmul(weights, x.data(), tokens, y.data());
  return y;
}

// The contract: exact_row_sum and exact_output, one output after the other.
void exact_matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  std::vector<int16_t> codes(static_cast<size_t>(weights.cols));
  for (int64_t t = 0; t < tokens; ++t) {
    ActivationVector vector{.values = x + t * weights.cols, .codes = codes.data(), .step = {}};
    if (reads_codes(weights.format)) {
      vector.step = exact_quantize(vector.values, weights.cols, codes.data());
    }
    for (int64_t r = 0; r < weights.rows; ++r) {
      *y++ = exact_output(weights, r, exact_row_sum(weights, r, vector), vector.step);
    }
  }
}

// The sums that matmul.h's bound is made of, for one output.
struct Sums {
  long double exact = 0;
  double products = 0;  // sum |w x|
  double weights = 0;   // sum |w|
};

Sums sum_slowly(const MatrixView& weights, int64_t row, const float* x) {
  Sums sums;
  for (int64_t c = 0; c < weights.cols; ++c) {
    const double w = decoded_weight(weights, row, c);
    sums.exact += static_cast<long double>(w) * static_cast<long double>(x[c]);
    sums.products += std::fabs(w * static_cast<double>(x[c]));
    sums.weights += std::fabs(w);
  }
  return sums;
}

TEST(MatmulReference, IsTheSumOfDecodedWeightsTimesActivations) {
  Random random(1);
  for (const Format format : kFormats) {
    for (const int64_t cols : {32, 160, 544}) {
      const RandomMatrix matrix(random, format, 21, cols);
      const std::vector<float> x = random_activations(random, 7, cols);
      const std::vector<float> y = run(reference::matmul, matrix.view, x);
      for (int64_t t = 0; t < 7; ++t) {
        for (int64_t r = 0; r < 21; ++r) {
          const Sums sums = sum_slowly(matrix.view, r, x.data() + t * cols);
          const double bound = std::ldexp(std::fabs(static_cast<double>(sums.exact)), -24) +
                               std::ldexp(static_cast<double>(cols) * sums.products, -53) +
                               0x1p-150;
          EXPECT_NEAR(static_cast<double>(y[static_cast<size_t>(t * 21 + r)]),
                      static_cast<double>(sums.exact), bound)
              << name_case(format, 21, cols, t);
        }
      }
    }
  }
}

TEST(MatmulReference, AddProductsContinuesTheSums) {
  const std::vector<float> w = {2.0F, 3.0F};
  const MatrixView view =
      view_matrix(Format::kF32, 2, 1, reinterpret_cast<const std::byte*>(w.data()));
  std::vector<double> sums = {100.0, 200.0, 300.0, 400.0};
  const std::vector<float> x = {10.0F, 1.0F};
  reference::add_products(view, x.data(), 2, sums.data());
  EXPECT_EQ(sums, (std::vector<double>{120.0, 230.0, 302.0, 403.0}));
}

TEST(MatmulExact, StaysWithinItsBoundOfReference) {
  Random random(2);
  for (const Format format : kFormats) {
    for (const int64_t cols : {32, 192, 7168}) {
      const int64_t rows = 5;
      const RandomMatrix matrix(random, format, rows, cols);
      const std::vector<float> x = random_activations(random, 7, cols);
      const std::vector<float> want = run(reference::matmul, matrix.view, x);
      const std::vector<float> got = run(exact_matmul, matrix.view, x);
      for (int64_t t = 0; t < 7; ++t) {
        const float* vector = x.data() + t * cols;
        std::vector<int16_t> codes(static_cast<size_t>(cols));
        const int e = exact_quantize(vector, cols, codes.data()).exponent;
        for (int64_t r = 0; r < rows; ++r) {
          const Sums sums = sum_slowly(matrix.view, r, vector);
          const double before_rounding =
              (reads_codes(format) ? std::ldexp(sums.weights, e - 1) : 0.0) +
              std::ldexp(static_cast<double>(cols) * sums.products, -52);
          const double size = std::fabs(static_cast<double>(sums.exact)) + before_rounding;
          const double bound = before_rounding + std::ldexp(size, -22) + 0x1p-148;
          const auto i = static_cast<size_t>(t * rows + r);
          EXPECT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]), bound)
              << name_case(format, rows, cols, t);
        }
      }
    }
  }
}

TEST(MatmulExact, Int8MultipliesTheBlockByItsMultiplierAndTheRowByItsScale) {
  const Blocks160 place{Format::kInt8, 1, 161};
  ZeroedBytes bytes(place.extent_bytes());
  bytes.data()[0] = std::byte{3};
  bytes.data()[160] = std::byte{251};  // -5
  bytes.data()[place.multiplier_offset(0, 0)] = std::byte{7};
  bytes.data()[place.multiplier_offset(0, 160)] = std::byte{255};
  const float scale = 0.5F;
  std::memcpy(bytes.data() + place.row_scale_offset(0), &scale, 4);
  std::vector<float> x(161, 0.0F);
  x[0] = 10.0F;
  x[160] = 32639.0F;
  const MatrixView view = view_matrix(Format::kInt8, 1, 161, bytes.data());
  EXPECT_EQ(run(exact_matmul, view, x)[0],
            static_cast<float>(0.5 * (3 * 7 * 10 - 5 * 255 * 32639)));
}

TEST(MatmulExact, Ternary2WeighsTheFirstPlaneThreefold) {
  const Blocks160 place{Format::kTernary2, 1, 161};
  ZeroedBytes bytes(place.extent_bytes());
  std::fill_n(bytes.data(), place.multipliers_offset(), std::byte{kFiveZeroTrits});
  // Input 33 is the second trit of byte 1, input 160 the first of byte 32.
  bytes.data()[1] = std::byte{encode_five_trits(121 + 27)};
  bytes.data()[place.plane_offset(1) + 1] = std::byte{encode_five_trits(121 - 27)};
  bytes.data()[place.plane_offset(1) + 32] = std::byte{encode_five_trits(121 - 81)};
  bytes.data()[place.multiplier_offset(0, 0)] = std::byte{7};
  bytes.data()[place.multiplier_offset(0, 160)] = std::byte{255};
  const float scale = 0.5F;
  std::memcpy(bytes.data() + place.row_scale_offset(0), &scale, 4);
  std::vector<float> x(161, 0.0F);
  x[33] = 10.0F;
  x[160] = 32639.0F;
  const MatrixView two = view_matrix(Format::kTernary2, 1, 161, bytes.data());
  const auto both = static_cast<float>(0.5 * ((3 - 1) * 7 * 10 - 255 * 32639));
  EXPECT_EQ(run(exact_matmul, two, x)[0], both);
  EXPECT_EQ(run(reference::matmul, two, x)[0], both);

  // The first plane with the same scales is a matrix of ternary.
  MatrixView one = two;
  one.format = Format::kTernary;
  EXPECT_EQ(run(exact_matmul, one, x)[0], static_cast<float>(0.5 * 7 * 10));
  EXPECT_EQ(run(reference::matmul, one, x)[0], static_cast<float>(0.5 * 7 * 10));
}

TEST(MatmulExact, Mxfp4ReadsTheEvenInputFromTheLowNibble) {
  ZeroedBytes bytes(64);
  bytes.data()[0] = std::byte{0xF2};      // input 0: code 2 = 1, input 1: code 15 = -6
  bytes.data()[16] = std::byte{127 + 3};  // scale 2^3
  const MatrixView view{.format = Format::kMxfp4,
                        .rows = 1,
                        .cols = 32,
                        .codes = bytes.data(),
                        .row_stride_bytes = 16,
                        .scales = reinterpret_cast<const uint8_t*>(bytes.data() + 16),
                        .scales_per_row = 1,
                        .row_scales = nullptr,
                        .least_exponent = 127 + 1};
  std::vector<float> x(32, 0.0F);
  x[0] = 1.0F;
  EXPECT_EQ(run(exact_matmul, view, x)[0], 8.0F);
  EXPECT_EQ(run(reference::matmul, view, x)[0], 8.0F);
  std::swap(x[0], x[1]);
  EXPECT_EQ(run(exact_matmul, view, x)[0], -48.0F);
  EXPECT_EQ(run(reference::matmul, view, x)[0], -48.0F);
}

TEST(MatmulExact, Mxfp4ShiftsByUpTo31) {
  EXPECT_EQ(mxfp4_shift(131, 100), 31);
  EXPECT_EQ(mxfp4_shift(100, 100), 0);
  EXPECT_EQ(mxfp4_shift(0, 100), 0);  // a group of zeros
  EXPECT_EQ(mxfp4_shift(255, 100), 31);
}

TEST(MatmulExact, OneNonFiniteActivationMakesItsTokensOutputsNan) {
  Random random(3);
  for (const Format format : {Format::kInt8, Format::kMxfp4, Format::kTernary, Format::kTernary2}) {
    const RandomMatrix matrix(random, format, 3, 64);
    std::vector<float> x(128, 1.0F);
    x[64 + 17] = std::numeric_limits<float>::infinity();
    for (const Matmul matmul : {Matmul{exact_matmul}, Matmul{cpu::matmul}}) {
      const std::vector<float> y = run(matmul, matrix.view, x);
      for (size_t r = 0; r < 3; ++r) {
        EXPECT_TRUE(std::isfinite(y[r]));
        EXPECT_TRUE(std::isnan(y[3 + r]));
      }
    }
  }
}

void expect_exact_bits_on_every_target(const MatrixView& weights, const std::vector<float>& x) {
  const std::vector<float> want = run(exact_matmul, weights, x);
  const int64_t tokens = static_cast<int64_t>(x.size()) / std::max<int64_t>(1, weights.cols);
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    ASSERT_TRUE(same_bits(run(cpu::matmul, weights, x), want))
        << hwy::TargetName(target) << ", "
        << name_case(weights.format, weights.rows, weights.cols, tokens);
  }
}

TEST(MatmulCpu, HasTheExactBitsAroundBlockAndGroupEdges) {
  Random random(4);
  for (const Format format : kFormats) {
    for (const int64_t cols : {1, 31, 32, 33, 64, 159, 160, 161, 192, 319, 320}) {
      if (format == Format::kMxfp4 && cols % 32 != 0) continue;
      for (const int64_t rows : {1, 2, 3, 15, 16, 17, 33, 70}) {
        for (const int64_t tokens : {1, 2, 3, 17}) {
          const RandomMatrix matrix(random, format, rows, cols);
          expect_exact_bits_on_every_target(matrix.view, random_activations(random, tokens, cols));
        }
      }
    }
  }
}

TEST(MatmulCpu, TernaryHasTheExactBitsForAnyNumberOfTokens) {
  Random random(10);
  for (const Format format : {Format::kTernary, Format::kTernary2}) {
    for (const int64_t cols : {1, 161}) {
      const RandomMatrix matrix(random, format, 5, cols);
      for (int64_t tokens = 1; tokens <= 64; ++tokens) {
        expect_exact_bits_on_every_target(matrix.view, random_activations(random, tokens, cols));
      }
    }
  }
}

TEST(MatmulCpu, HasTheExactBitsAtTheModelsWidths) {
  Random random(5);
  for (const Format format : kFormats) {
    const RandomMatrix wide(random, format, 3, 7168);
    expect_exact_bits_on_every_target(wide.view, random_activations(random, 64, 7168));
    const RandomMatrix widest(random, format, 2, 33792);
    expect_exact_bits_on_every_target(widest.view, random_activations(random, 2, 33792));
    const RandomMatrix tall(random, format, 513, 96);
    expect_exact_bits_on_every_target(tall.view, random_activations(random, 9, 96));
  }
}

TEST(MatmulCpu, HasTheExactBitsWhereEveryCodeAndActivationIsExtreme) {
  // The largest sums an int8 row can have, -128 (not a code of ours) included.
  const int64_t cols = 33792;
  const Blocks160 place{Format::kInt8, 1, cols};
  ZeroedBytes bytes(place.extent_bytes());
  for (const int code : {127, -127, -128}) {
    std::fill_n(bytes.data(), cols, static_cast<std::byte>(code));
    std::fill_n(bytes.data() + place.multipliers_offset(), place.blocks_per_row(), std::byte{255});
    for (const float scale : {1.0F, 3e38F, 1e-45F}) {
      std::memcpy(bytes.data() + place.row_scale_offset(0), &scale, 4);
      std::vector<float> x(static_cast<size_t>(2 * cols), -32639.0F);
      std::fill(x.begin() + cols, x.end(), 32639.0F);
      const MatrixView view = view_matrix(Format::kInt8, 1, cols, bytes.data());
      expect_exact_bits_on_every_target(view, x);
      if (scale == 1.0F) {
        const double sum = -32639.0 * code * 255.0 * static_cast<double>(cols);
        EXPECT_EQ(run(cpu::matmul, view, x)[0], static_cast<float>(sum));
      }
    }
  }
}

TEST(MatmulCpu, HasTheExactBitsWhereEveryTritAndActivationIsExtreme) {
  const int64_t cols = 33792;
  for (const Format format : {Format::kTernary, Format::kTernary2}) {
    const Blocks160 place{format, 1, cols};
    ZeroedBytes bytes(place.extent_bytes());
    std::fill_n(bytes.data() + place.multipliers_offset(), place.blocks_per_row(), std::byte{255});
    const float scale = 1.0F;
    std::memcpy(bytes.data() + place.row_scale_offset(0), &scale, 4);
    std::vector<float> x(static_cast<size_t>(2 * cols), -32639.0F);
    std::fill(x.begin() + cols, x.end(), 32639.0F);
    for (const int sign : {-1, 1}) {
      const uint8_t byte = encode_five_trits(sign < 0 ? 0 : 242);
      std::fill_n(bytes.data(), place.multipliers_offset(), std::byte{byte});
      const MatrixView view = view_matrix(format, 1, cols, bytes.data());
      expect_exact_bits_on_every_target(view, x);
      const int code = sign * largest_ternary_code(format);
      const double sum = -32639.0 * code * 255.0 * static_cast<double>(cols);
      EXPECT_EQ(run(cpu::matmul, view, x)[0], static_cast<float>(sum));
    }
  }
}

// Also the 13 that hold no trits and the padding: a damaged pack gives the same wrong numbers
// everywhere.
TEST(MatmulCpu, HasTheExactBitsForAnyBytesOfTernary) {
  Random random(11);
  for (const Format format : {Format::kTernary, Format::kTernary2}) {
    RandomMatrix matrix(random, format, 4, 8 * 160);  // 256 bytes a row
    const Blocks160 place{format, 4, 8 * 160};
    for (int64_t plane = 0; plane < place.planes(); ++plane) {
      for (int64_t i = 0; i < place.plane_bytes(); ++i) {
        matrix.bytes.data()[place.plane_offset(plane) + i] =
            static_cast<std::byte>(i * (1 + plane));
      }
    }
    expect_exact_bits_on_every_target(matrix.view, random_activations(random, 7, 8 * 160));
  }
}

TEST(MatmulCpu, HasTheExactBitsForAnyBytesOfMxfp4) {
  Random random(6);
  for (const int least : {0, 100, 254, 255}) {
    RandomMatrix matrix(random, Format::kMxfp4, 5, 1024);
    for (int64_t i = 0; i < int64_t{5} * 1024 / 32 * 17; ++i) {
      matrix.bytes.data()[i] = static_cast<std::byte>(random());
    }
    matrix.view.least_exponent = least;
    expect_exact_bits_on_every_target(matrix.view, random_activations(random, 7, 1024));
  }
}

TEST(MatmulCpu, HasTheExactBitsForNonFiniteAndSubnormalFloats) {
  Random random(7);
  std::vector<float> w(256);
  for (float& weight : w) weight = std::ldexp(random_weight(random), -135);
  w[70] = std::numeric_limits<float>::infinity();
  w[150] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = random_activations(random, 7, 64);
  x[0] = -std::numeric_limits<float>::infinity();
  x[64] = std::numeric_limits<float>::quiet_NaN();
  const auto* bytes = reinterpret_cast<const std::byte*>(w.data());
  expect_exact_bits_on_every_target(view_matrix(Format::kF32, 4, 64, bytes), x);
  expect_exact_bits_on_every_target(view_matrix(Format::kBf16, 4, 64, bytes), x);
}

TEST(MatmulCpu, ThreadsDoNotChangeBits) {
  Random random(8);
  for (const Format format : kFormats) {
    const RandomMatrix matrix(random, format, 600, 256);
    const std::vector<float> x = random_activations(random, 17, 256);
    const std::vector<float> want = run(exact_matmul, matrix.view, x);
    for (const int threads : {1, 2, 7}) {
      const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                      static_cast<size_t>(threads));
      tbb::task_arena arena(threads);
      arena.execute([&] { EXPECT_TRUE(same_bits(run(cpu::matmul, matrix.view, x), want)); });
    }
  }
}

TEST(MatmulCpu, NoTokensAndNoRowsAreNoWork) {
  Random random(9);
  RandomMatrix matrix(random, Format::kInt8, 3, 160);
  cpu::matmul(matrix.view, nullptr, 0, nullptr);
  matrix.view.rows = 0;
  const std::vector<float> x(160, 1.0F);
  cpu::matmul(matrix.view, x.data(), 1, nullptr);
}

TEST(Embedding, LooksUpRowsOfBf16AndF32) {
  const std::vector<float> f32 = {1.5F, -2.0F, 0.25F, 1e-40F};
  std::vector<uint16_t> bf16;
  for (const float value : f32) bf16.push_back(encode_bf16(value));
  const std::vector<int32_t> ids = {1, 0, 1};
  std::vector<float> y(6);
  cpu::embed(view_matrix(Format::kF32, 2, 2, reinterpret_cast<const std::byte*>(f32.data())), ids,
             y.data());
  EXPECT_TRUE(same_bits(y, std::vector<float>{0.25F, 1e-40F, 1.5F, -2.0F, 0.25F, 1e-40F}));
  cpu::embed(view_matrix(Format::kBf16, 2, 2, reinterpret_cast<const std::byte*>(bf16.data())), ids,
             y.data());
  const float rounded = decode_bf16(bf16[3]);
  EXPECT_TRUE(same_bits(y, std::vector<float>{0.25F, rounded, 1.5F, -2.0F, 0.25F, rounded}));
}

}  // namespace
}  // namespace k3
