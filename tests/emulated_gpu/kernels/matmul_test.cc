#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/operations_cuda.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/prepared_vectors.h"
#include "tests/kernels/bit_equality.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

using test::DeviceArray;
using test::DeviceMatrix;
using test::the_stream;

constexpr Format kFormats[] = {Format::kF32,   Format::kBf16,    Format::kInt8,
                               Format::kMxfp4, Format::kTernary, Format::kTernary2};

int64_t tokens_of(const std::vector<float>& x, const MatrixView& weights) {
  return static_cast<int64_t>(x.size()) / weights.cols;
}

std::vector<float> exact_product(const MatrixView& weights, const std::vector<float>& x) {
  std::vector<float> y;
  std::vector<int16_t> codes(static_cast<size_t>(weights.cols));
  for (int64_t t = 0; t < tokens_of(x, weights); ++t) {
    ActivationVector vector{
        .values = x.data() + t * weights.cols, .codes = codes.data(), .step = {}};
    if (reads_codes(weights.format)) {
      vector.step = exact_quantize(vector.values, weights.cols, codes.data());
    }
    for (int64_t r = 0; r < weights.rows; ++r) {
      y.push_back(exact_output(weights, r, exact_row_sum(weights, r, vector), vector.step));
    }
  }
  return y;
}

std::vector<float> product_on_gpu(const RandomMatrix& matrix, const std::vector<float>& x) {
  const MatrixView& w = matrix.view;
  const int64_t tokens = tokens_of(x, w);
  const DeviceMatrix weights(w);
  DeviceArray<float> values(x);
  test::PreparedOnDevice prepared(w.format, values.data(), tokens, w.cols);
  DeviceArray<float> y(static_cast<size_t>(tokens * w.rows));
  EXPECT_EQ(cuda::matmul(weights.view(), prepared.view(), tokens, y.data(), the_stream()),
            cudaSuccess);
  return y.values();
}

void expect_exact_bits(const RandomMatrix& matrix, const std::vector<float>& x) {
  const std::vector<float> want = exact_product(matrix.view, x);
  for (const auto order : {emulated::Order::kAscending, emulated::Order::kDescending}) {
    emulated::set_order(order);
    ASSERT_TRUE(same_bits(product_on_gpu(matrix, x), want)) << name_case(
        matrix.view.format, matrix.view.rows, matrix.view.cols, tokens_of(x, matrix.view));
  }
  emulated::set_order(emulated::Order::kAscending);
}

TEST(MatmulCuda, HasTheExactBitsAroundBlockGroupAndWarpEdges) {
  Random random(1);
  for (const Format format : kFormats) {
    for (const int64_t cols : {1, 31, 32, 33, 40, 64, 159, 160, 161, 192, 320, 544}) {
      if (format == Format::kMxfp4 && cols % 32 != 0) continue;
      for (const int64_t rows : {1, 3, 17, 33}) {
        for (const int64_t tokens : {1, 7}) {
          const RandomMatrix matrix(random, format, rows, cols);
          expect_exact_bits(matrix, random_activations(random, tokens, cols));
        }
      }
    }
  }
}

TEST(MatmulCuda, HasTheExactBitsAtTheModelsWidths) {
  Random random(2);
  for (const Format format : kFormats) {
    const RandomMatrix wide(random, format, 5, 7168);
    expect_exact_bits(wide, random_activations(random, 7, 7168));
    const RandomMatrix widest(random, format, 2, 33792);
    expect_exact_bits(widest, random_activations(random, 3, 33792));
  }
}

// From 4096 rows on a warp takes two.
TEST(MatmulCuda, HasTheExactBitsWhereAWarpTakesTwoRows) {
  Random random(3);
  for (const Format format : {Format::kInt8, Format::kMxfp4, Format::kTernary}) {
    const RandomMatrix tall(random, format, 4097, 32);
    expect_exact_bits(tall, random_activations(random, 1, 32));
  }
}

TEST(MatmulCuda, HasTheExactBitsForAnyBytesOfTernaryAndAnyScaleOfMxfp4) {
  Random random(4);
  for (const Format format : {Format::kTernary, Format::kTernary2, Format::kMxfp4}) {
    RandomMatrix matrix(random, format, 9, 320);
    const auto bytes = static_cast<int64_t>(test::extent_of(matrix.view).size());
    const int64_t end =
        format == Format::kMxfp4 ? bytes : Blocks160{format, 9, 320}.row_scales_offset();
    for (int64_t i = 0; i < end; ++i) matrix.bytes.data()[i] = static_cast<std::byte>(random());
    expect_exact_bits(matrix, random_activations(random, 7, 320));
  }
}

TEST(MatmulCuda, Int8HasTheExactBitsWhereEveryCodeAndActivationIsExtreme) {
  Random random(5);
  const int64_t cols = 33792;
  RandomMatrix matrix(random, Format::kInt8, 1, cols);
  const Blocks160 place{Format::kInt8, 1, cols};
  for (const int code : {127, -128}) {
    std::fill_n(matrix.bytes.data(), cols, static_cast<std::byte>(code));
    std::fill_n(matrix.bytes.data() + place.multipliers_offset(), place.blocks_per_row(),
                std::byte{255});
    expect_exact_bits(matrix, std::vector<float>(static_cast<size_t>(cols), -32639.0F));
  }
}

TEST(MatmulCuda, FloatWeightsThatAreNotFiniteGiveWhatTheContractGives) {
  Random random(6);
  for (const Format format : {Format::kBf16, Format::kF32}) {
    RandomMatrix matrix(random, format, 21, 96);
    const float odd[] = {std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN(),
                         0x1p-149F,
                         0x1p-130F,
                         -0.0F};
    for (int64_t i = 0; i < 6; ++i) {  // one in every third row
      const float value = odd[i];
      const auto bf16 = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      std::byte* row = matrix.bytes.data() + 3 * i * matrix.view.row_stride_bytes;
      if (format == Format::kBf16) std::memcpy(row + 2 * 37, &bf16, 2);
      if (format == Format::kF32) std::memcpy(row + 4 * 37, &value, 4);
    }
    std::vector<float> x = random_activations(random, 3, 96);
    expect_exact_bits(matrix, x);
    x[37] = 0.0F;  // times infinity
    x[96] = std::numeric_limits<float>::infinity();
    expect_exact_bits(matrix, x);
  }
}

TEST(MatmulCuda, OneNonFiniteActivationMakesItsTokensOutputsNan) {
  Random random(7);
  for (const Format format : {Format::kInt8, Format::kMxfp4, Format::kTernary, Format::kTernary2}) {
    const RandomMatrix matrix(random, format, 3, 64);
    std::vector<float> x(128, 1.0F);
    x[64 + 17] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> y = product_on_gpu(matrix, x);
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(std::isfinite(y[r]));
      EXPECT_TRUE(std::isnan(y[3 + r]));
    }
  }
}

TEST(AuditMatmul, IsTheProductInDouble) {
  Random random(8);
  for (const Format format : kFormats) {
    for (const int64_t cols : {33, 320, 7168}) {
      if (format == Format::kMxfp4 && cols % 32 != 0) continue;
      const RandomMatrix matrix(random, format, 5, cols);
      const DeviceMatrix weights(matrix.view);
      const std::vector<float> x = random_activations(random, 7, cols);
      DeviceArray<float> values(x);
      DeviceArray<float> y(static_cast<size_t>(7 * 5));
      DeviceArray<double> wide(static_cast<size_t>(7 * cuda::audit::wide_cols(format, cols)));
      EXPECT_EQ(
          cuda::audit::widen_activations(values.data(), 7, cols, format, wide.data(), the_stream()),
          cudaSuccess);
      EXPECT_EQ(cuda::audit::matmul(weights.view(), wide.data(), 7, y.data(), the_stream()),
                cudaSuccess);
      const std::vector<float> got = y.values();
      std::vector<float> want(got.size());
      reference::matmul(matrix.view, x.data(), 7, want.data());
      for (size_t i = 0; i < got.size(); ++i) {
        double largest = 0;  // of the vector: the size of what cancels
        for (int64_t c = 0; c < cols; ++c) {
          const float value = x[i / 5 * static_cast<size_t>(cols) + static_cast<size_t>(c)];
          largest = std::max(largest, std::fabs(static_cast<double>(value)));
        }
        EXPECT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]),
                    0x1p-22 * std::fabs(static_cast<double>(want[i])) + 0x1p-30 * largest)
            << name_case(format, 5, cols, 7);
      }
    }
  }
}

}  // namespace
}  // namespace k3
