#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

TEST(RmsNorm, DividesByTheRootMeanSquareAndMultipliesByTheWeight) {
  const float x[] = {3, 4, 0, 0};  // mean square 25/4
  const float weight[] = {1, 2, 3, 4};
  for (auto* rms_norm : {reference::rms_norm, cpu::rms_norm}) {
    float y[4];
    rms_norm(x, weight, 1, 4, 0.0, y);
    EXPECT_FLOAT_EQ(y[0], 1.2f);
    EXPECT_FLOAT_EQ(y[1], 3.2f);
    EXPECT_EQ(y[2], 0.0f);
  }
}

TEST(RmsNorm, EpsilonIsAddedToTheMean) {
  const float x[] = {1, 1, 1, 1};
  const float weight[] = {1, 1, 1, 1};
  for (auto* rms_norm : {reference::rms_norm, cpu::rms_norm}) {
    float y[4];
    rms_norm(x, weight, 1, 4, 3.0, y);
    EXPECT_EQ(y[0], 0.5f);
  }
}

TEST(RmsNorm, ZeroVectorStaysZero) {
  const std::vector<float> zeros(33);
  std::vector<float> y(33, 1.0f);
  cpu::rms_norm(zeros.data(), zeros.data(), 1, 33, 1e-5, y.data());
  expect_same_bits(y, zeros);
}

TEST(RmsNorm, LargestFloatsDoNotOverflow) {
  const std::vector<float> x(40, std::numeric_limits<float>::max());
  const std::vector<float> weight(40, 1.0f);
  std::vector<float> y(40);
  cpu::rms_norm(x.data(), weight.data(), 1, 40, 1e-5, y.data());
  EXPECT_EQ(y[0], 1.0f);
}

TEST(RmsNorm, NanReachesTheWholeTokenAndNoOther) {
  std::vector<float> x(80, 1.0f);
  x[41] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> weight(40, 1.0f);
  cpu::rms_norm(x.data(), weight.data(), 2, 40, 1e-5, x.data());
  for (size_t i = 0; i < 40; ++i) EXPECT_FALSE(std::isnan(x[i]));
  for (size_t i = 40; i < 80; ++i) EXPECT_TRUE(std::isnan(x[i]));
}

TEST(RmsNorm, CpuGivesTheExactBitsAlsoInPlace) {
  on_every_target([] {
    for (int64_t width : {1, 31, 32, 33, 576, 7168}) {
      const int64_t tokens = width < 1000 ? 3 : 21;
      const auto x = normal_values(tokens * width, 5, 3.0f);
      const auto weight = normal_values(width, 6);
      std::vector<float> want(x.size());
      for (int64_t t = 0; t < tokens; ++t) {
        const double inverse_rms = exact_inverse_rms(x.data() + t * width, width, 1e-5);
        for (int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<size_t>(t * width + i);
          want[at] = exact_rms_norm(x[at], inverse_rms, weight[static_cast<size_t>(i)]);
        }
      }
      std::vector<float> got = x;
      cpu::rms_norm(got.data(), weight.data(), tokens, width, 1e-5, got.data());
      expect_same_bits(got, want);
    }
  });
}

TEST(RmsNorm, ExactIsWithinAnUlpOfReference) {
  const auto x = normal_values(7168, 7, 3.0f);
  const auto weight = normal_values(7168, 8);
  std::vector<float> exact(7168);
  std::vector<float> reference(7168);
  cpu::rms_norm(x.data(), weight.data(), 1, 7168, 1e-5, exact.data());
  reference::rms_norm(x.data(), weight.data(), 1, 7168, 1e-5, reference.data());
  expect_close(exact, reference, 0x1p-23, 0);
}

}  // namespace
}  // namespace k3
