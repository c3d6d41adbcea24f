#include "kernels/gradients.h"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <vector>

#include "kernels/attention_residual.h"
#include "kernels/decode_rows.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/short_conv.h"
#include "tests/kernels/decoded_weight.h"
#include "tests/kernels/finite_differences.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

constexpr double kEpsilon = 1e-5;

constexpr std::array<Format, 6> kFormats = {Format::kF32,     Format::kBf16,     Format::kInt8,
                                            Format::kTernary, Format::kTernary2, Format::kMxfp4};

TEST(DecodeRows, GivesTheWeightsAndCodesOfEveryFormat) {
  Random random(1);
  for (const Format format : kFormats) {
    const int64_t cols = format == Format::kMxfp4 ? 192 : 331;
    const RandomMatrix matrix(random, format, 5, cols);
    Floats rows(static_cast<size_t>(3 * cols));
    decode_rows(matrix.view, 1, 3, rows.data());
    Floats codes(static_cast<size_t>(cols));
    if (lies_in_blocks160(format)) decode_codes(matrix.view, 1, codes.data());
    for (int64_t i = 0; i < 3 * cols; ++i) {
      const int64_t row = 1 + i / cols;
      const int64_t col = i % cols;
      const auto want = static_cast<float>(decoded_weight(matrix.view, row, col));
      ASSERT_EQ(rows[static_cast<size_t>(i)], want) << name_case(format, row, col, 0);
      if (row > 1 || !lies_in_blocks160(format)) continue;
      const uint8_t multiplier = matrix.view.scales[row * matrix.view.scales_per_row + col / 160];
      const double scale = static_cast<double>(matrix.view.row_scales[row]) * multiplier;
      ASSERT_EQ(static_cast<float>(scale * codes[static_cast<size_t>(col)]), want);
    }
  }
}

// Two blocks of 160 inputs and a tail.
TEST(GradientMatmul, OfTheInputsIsThatOfEveryFormat) {
  Random random(2);
  for (const Format format : kFormats) {
    const int64_t cols = format == Format::kMxfp4 ? 192 : 331;
    const int64_t tokens = 3;
    const RandomMatrix matrix(random, format, 7, cols);
    Floats x = normal_values(tokens * cols, 3);
    SCOPED_TRACE(name_case(format, 7, cols, tokens));
    check_gradients(
        {&x},
        [&] {
          Floats y(static_cast<size_t>(tokens * 7));
          reference::matmul(matrix.view, x.data(), tokens, y.data());
          return y;
        },
        [&](const Floats& gy, const std::vector<float*>& gradients) {
          gradient::matmul(matrix.view, x.data(), gy.data(), tokens, gradients[0], nullptr);
        },
        1.0);  // linear: any step is exact
  }
}

// A row scale moves all scales of its row, each by its multiplier.
TEST(GradientMatmul, OfTheScalesAddsUpToThatOfTheRowScale) {
  Random random(3);
  for (const Format format : {Format::kInt8, Format::kTernary, Format::kTernary2}) {
    for (const int64_t cols : {97, 331}) {
      const int64_t rows = 51;
      const int64_t tokens = 4;
      RandomMatrix matrix(random, format, rows, cols);
      SCOPED_TRACE(name_case(format, rows, cols, tokens));
      Floats row_scales(static_cast<size_t>(rows), 0.01F);
      matrix.view.row_scales = row_scales.data();
      const Floats x = normal_values(tokens * cols, 4);
      const Floats gy = normal_values(tokens * rows, 5);
      Floats g_scales(static_cast<size_t>(rows * matrix.view.scales_per_row));
      gradient::matmul(matrix.view, x.data(), gy.data(), tokens, nullptr, g_scales.data());
      Floats row_gradients;
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t b = 0; b < matrix.view.scales_per_row; ++b) {
          const auto at = static_cast<size_t>(r * matrix.view.scales_per_row + b);
          sum += static_cast<double>(g_scales[at]) * matrix.view.scales[at];
        }
        row_gradients.push_back(static_cast<float>(sum));
      }
      const Floats numeric = numeric_gradient(row_scales, gy, 0.005, [&] {
        Floats y(static_cast<size_t>(tokens * rows));
        reference::matmul(matrix.view, x.data(), tokens, y.data());
        return y;
      });
      EXPECT_LT(relative_distance(row_gradients, numeric), 1e-5);
    }
  }
}

TEST(GradientMatmul, OfAScaleIsTheSumOverItsBlockAlone) {
  Random random(4);
  for (const Format format : {Format::kInt8, Format::kTernary, Format::kTernary2}) {
    const int64_t rows = 3;
    const int64_t cols = 331;
    const int64_t tokens = 4;
    const RandomMatrix matrix(random, format, rows, cols);
    const Floats ones(static_cast<size_t>(rows), 1.0F);
    const std::vector<uint8_t> unit(static_cast<size_t>(rows * matrix.view.scales_per_row), 1);
    MatrixView codes = matrix.view;
    codes.row_scales = ones.data();
    codes.scales = unit.data();
    const Floats x = normal_values(tokens * cols, 6);
    const Floats gy = normal_values(tokens * rows, 7);
    Floats want(unit.size(), 1.0F);
    for (int64_t i = 0; i < tokens * rows * cols; ++i) {
      const int64_t t = i / (rows * cols);
      const int64_t r = i / cols % rows;
      const int64_t c = i % cols;
      want[static_cast<size_t>(r * codes.scales_per_row + c / 160)] +=
          static_cast<float>(gy[static_cast<size_t>(t * rows + r)] * decoded_weight(codes, r, c) *
                             x[static_cast<size_t>(t * cols + c)]);
    }
    Floats g_scales(want.size(), 1.0F);
    gradient::matmul(matrix.view, x.data(), gy.data(), tokens, nullptr, g_scales.data());
    EXPECT_LT(relative_distance(g_scales, want), 1e-5) << format_name(format);
  }
}

// Float weights move one by one.
TEST(GradientMatmul, OfTheWeightsAgreesWithDifferences) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 37;
  constexpr int64_t kTokens = 4;
  Floats weights = normal_values(kRows * kCols, 10);
  const Floats x = normal_values(kTokens * kCols, 11);
  const MatrixView view{.format = Format::kF32,
                        .rows = kRows,
                        .cols = kCols,
                        .codes = reinterpret_cast<const std::byte*>(weights.data()),
                        .row_stride_bytes = kCols * 4};
  check_gradients(
      {&weights},
      [&] {
        Floats y(static_cast<size_t>(kTokens * kRows));
        reference::matmul(view, x.data(), kTokens, y.data());
        return y;
      },
      [&](const Floats& gy, const std::vector<float*>& gradients) {
        if (gradients[0] == nullptr) return;
        gradient::matmul_weights(x.data(), gy.data(), kTokens, kRows, kCols, gradients[0]);
      },
      1.0);
}

TEST(GradientMatmul, HasTheSameBitsOnAnyNumberOfThreads) {
  Random random(5);
  const int64_t tokens = 70;
  const RandomMatrix matrix(random, Format::kTernary, 300, 500);
  const Floats x = normal_values(tokens * 500, 8);
  const Floats gy = normal_values(tokens * 300, 9);
  expect_same_bits_on_any_threads({x.size(), static_cast<size_t>(300 * matrix.view.scales_per_row)},
                                  [&](const std::vector<float*>& gradients) {
                                    gradient::matmul(matrix.view, x.data(), gy.data(), tokens,
                                                     gradients[0], gradients[1]);
                                  });
}

TEST(GradientRmsNorm, AgreesWithDifferences) {
  Floats x = normal_values(int64_t{3} * 67, 1);
  Floats weight = normal_values(67, 2);
  check_gradients(
      {&x, &weight},
      [&] {
        Floats y(x.size());
        reference::rms_norm(x.data(), weight.data(), 3, 67, kEpsilon, y.data());
        return y;
      },
      [&](const Floats& gy, const std::vector<float*>& gradients) {
        gradient::rms_norm(x.data(), weight.data(), gy.data(), 3, 67, kEpsilon, gradients[0],
                           gradients[1]);
      });
}

TEST(GradientRmsNorm, HasTheSameBitsOnAnyNumberOfThreads) {
  const Floats x = normal_values(int64_t{300} * 200, 1);
  const Floats gy = normal_values(int64_t{300} * 200, 2);
  const Floats weight = normal_values(200, 3);
  expect_same_bits_on_any_threads({x.size(), weight.size()},
                                  [&](const std::vector<float*>& gradients) {
                                    gradient::rms_norm(x.data(), weight.data(), gy.data(), 300, 200,
                                                       kEpsilon, gradients[0], gradients[1]);
                                  });
}

TEST(GradientGlu, AgreesWithDifferencesForBothActivations) {
  Floats gate = normal_values(300, 1, 2.0F);
  Floats up = normal_values(300, 2, 2.0F);
  for (const Activation activation : {Activation::kSilu, Activation::kSitu}) {
    const GluRule rule{activation, 1.5, 3.0};
    check_gradients(
        {&gate, &up},
        [&] {
          Floats y(gate.size());
          reference::glu(rule, gate.data(), up.data(), 300, y.data());
          return y;
        },
        [&](const Floats& gy, const std::vector<float*>& gradients) {
          gradient::glu(rule, gate.data(), up.data(), gy.data(), 300, gradients[0], gradients[1]);
        });
  }
}

TEST(GradientSigmoidGate, AgreesWithDifferences) {
  Floats x = normal_values(300, 1);
  Floats gate = normal_values(300, 2, 2.0F);
  check_gradients(
      {&x, &gate},
      [&] {
        Floats y(x.size());
        reference::sigmoid_gate(x.data(), gate.data(), 300, y.data());
        return y;
      },
      [&](const Floats& gy, const std::vector<float*>& gradients) {
        gradient::sigmoid_gate(x.data(), gate.data(), gy.data(), 300, gradients[0], gradients[1]);
      });
}

TEST(GradientShortConv, AgreesWithDifferencesAlsoWithFewerTokensThanTaps) {
  const int64_t channels = 19;
  for (const int64_t tokens : {2, 7}) {
    for (const int64_t taps : {1, 4}) {
      Floats x = normal_values(tokens * channels, 1);
      const Floats weight = normal_values(channels * taps, 2);
      check_gradients(
          {&x},
          [&] {
            Floats y(x.size());
            Floats window(static_cast<size_t>((taps - 1) * channels));
            reference::short_conv(x.data(), weight.data(), tokens, channels, taps, window.data(),
                                  y.data());
            return y;
          },
          [&](const Floats& gy, const std::vector<float*>& gradients) {
            gradient::short_conv(x.data(), weight.data(), gy.data(), tokens, channels, taps,
                                 gradients[0]);
          });
    }
  }
}

TEST(GradientShortConv, HasTheSameBitsOnAnyNumberOfThreads) {
  const Floats x = normal_values(int64_t{200} * 100, 1);
  const Floats gy = normal_values(int64_t{200} * 100, 2);
  const Floats weight = normal_values(int64_t{100} * 4, 3);
  expect_same_bits_on_any_threads({x.size()}, [&](const std::vector<float*>& gradients) {
    gradient::short_conv(x.data(), weight.data(), gy.data(), 200, 100, 4, gradients[0]);
  });
}

TEST(GradientAttentionResidual, AgreesWithDifferencesForOneSourceAndThree) {
  const int64_t tokens = 3;
  const int64_t hidden = 37;
  for (const size_t count : {1U, 3U}) {
    std::vector<Floats> sources;
    for (uint32_t j = 0; j < count; ++j) sources.push_back(normal_values(tokens * hidden, 10 + j));
    Floats norm = normal_values(hidden, 1);
    const Floats proj = normal_values(hidden, 2, 0.3F);
    std::vector<Floats*> inputs;
    std::vector<const float*> pointers;
    for (Floats& source : sources) {
      inputs.push_back(&source);
      pointers.push_back(source.data());
    }
    // One source has weight 1 whatever its score is: the gain has no gradient to compare.
    if (count > 1) inputs.push_back(&norm);
    check_gradients(
        inputs,
        [&] {
          Floats y(static_cast<size_t>(tokens * hidden));
          reference::attention_residual_mix(pointers, norm.data(), proj.data(), tokens, hidden,
                                            kEpsilon, y.data());
          return y;
        },
        [&](const Floats& gy, const std::vector<float*>& gradients) {
          gradient::attention_residual_mix(pointers, norm.data(), proj.data(), gy.data(), tokens,
                                           hidden, kEpsilon,
                                           std::span<float* const>(gradients).first(count),
                                           count > 1 ? gradients[count] : nullptr);
        });
  }
}

TEST(GradientAttentionResidual, HasTheSameBitsOnAnyNumberOfThreads) {
  const Floats a = normal_values(int64_t{200} * 100, 1);
  const Floats b = normal_values(int64_t{200} * 100, 2);
  const Floats gy = normal_values(int64_t{200} * 100, 3);
  const Floats gains = normal_values(200, 4);
  const std::vector<const float*> sources = {a.data(), b.data()};
  expect_same_bits_on_any_threads(
      {a.size(), b.size(), 100}, [&](const std::vector<float*>& gradients) {
        gradient::attention_residual_mix(sources, gains.data(), gains.data() + 100, gy.data(), 200,
                                         100, kEpsilon, std::span<float* const>(gradients).first(2),
                                         gradients[2]);
      });
}

TEST(GradientKdaOutputGate, AgreesWithDifferences) {
  const int64_t tokens = 3;
  const int64_t heads = 2;
  const int64_t dim = 19;
  Floats o = normal_values(tokens * heads * dim, 1);
  Floats weight = normal_values(dim, 2);
  Floats gate = normal_values(tokens * heads * dim, 3);
  check_gradients(
      {&o, &weight, &gate},
      [&] {
        Floats y(o.size());
        reference::kda_output_gate(o.data(), weight.data(), gate.data(), tokens, heads, dim,
                                   kEpsilon, y.data());
        return y;
      },
      [&](const Floats& gy, const std::vector<float*>& gradients) {
        gradient::kda_output_gate(o.data(), weight.data(), gate.data(), gy.data(), tokens, heads,
                                  dim, kEpsilon, gradients[0], gradients[1], gradients[2]);
      });
}

TEST(GradientKdaOutputGate, HasTheSameBitsOnAnyNumberOfThreads) {
  const Floats o = normal_values(int64_t{100} * 4 * 64, 1);
  const Floats gate = normal_values(int64_t{100} * 4 * 64, 2);
  const Floats gy = normal_values(int64_t{100} * 4 * 64, 3);
  const Floats weight = normal_values(64, 4);
  expect_same_bits_on_any_threads(
      {o.size(), weight.size(), gate.size()}, [&](const std::vector<float*>& gradients) {
        gradient::kda_output_gate(o.data(), weight.data(), gate.data(), gy.data(), 100, 4, 64,
                                  kEpsilon, gradients[0], gradients[1], gradients[2]);
      });
}

}  // namespace
}  // namespace k3
