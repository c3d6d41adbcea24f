#include "kernels/hadamard.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

TEST(Hadamard, FourChannelsBecomeTheFourSumsWithSigns) {
  const std::vector<float> x = {1, 2, 4, 8, 1, 0, 0, 0};
  for (auto* hadamard : {reference::hadamard, cpu::hadamard}) {
    std::vector<float> y(8);
    hadamard(x.data(), 1, 8, 4, y.data());
    expect_same_bits(y, std::vector<float>{7.5f, -2.5f, -4.5f, 1.5f, 0.5f, 0.5f, 0.5f, 0.5f});
  }
}

TEST(Hadamard, ABlockOfOneIsTheVectorItself) {
  const auto x = normal_values(33, 1);
  std::vector<float> y(x.size());
  cpu::hadamard(x.data(), 1, 33, 1, y.data());
  expect_same_bits(y, x);
}

TEST(Hadamard, TwiceIsNothingAndLengthsStay) {
  const auto x = normal_values(2 * 3584, 2);
  std::vector<float> y(x.size());
  cpu::hadamard(x.data(), 2, 3584, 512, y.data());
  const auto length = [](const std::vector<float>& v) {
    return std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
  };
  EXPECT_NEAR(length(y) / length(x), 1.0, 1e-6);
  cpu::hadamard(y.data(), 2, 3584, 512, y.data());
  expect_close(y, x, 0, 1e-6);
}

TEST(Hadamard, AnOutlierIsSpreadOverItsBlockAlone) {
  std::vector<float> x(256);
  x[77] = 64;
  cpu::hadamard(x.data(), 2, 128, 64, x.data());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::fabs(x[i]), i / 64 == 1 ? 8.0f : 0.0f) << i;
  }
}

TEST(Hadamard, NanReachesItsBlockAndNoOther) {
  std::vector<float> x(96, 1.0f);
  x[40] = std::numeric_limits<float>::quiet_NaN();
  cpu::hadamard(x.data(), 1, 96, 32, x.data());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(x[i]), i / 32 == 1) << i;
}

TEST(Hadamard, CpuGivesTheExactBitsAlsoInPlace) {
  on_every_target([] {
    for (const auto& [width, block] : {std::pair<int64_t, int64_t>(2, 2),
                                       {52, 4},
                                       {96, 32},
                                       {12288, 128},
                                       {6144, 2048},
                                       {8192, 4096}}) {
      const int64_t tokens = 5;
      const auto x = normal_values(tokens * width, 3, 7.0f);
      std::vector<float> want(x.size());
      std::vector<double> work(static_cast<size_t>(block));
      for (int64_t begin = 0; begin < tokens * width; begin += block) {
        exact_hadamard_block(x.data() + begin, block, work.data(), want.data() + begin);
      }
      std::vector<float> got = x;
      cpu::hadamard(got.data(), tokens, width, block, got.data());
      expect_same_bits(got, want);
    }
  });
}

TEST(Hadamard, ExactIsWithinItsBoundOfReference) {
  for (const int64_t block : {8, 128, 1024}) {
    const auto x = normal_values(block, 4, 3.0f);
    std::vector<float> exact(x.size());
    std::vector<float> reference(x.size());
    cpu::hadamard(x.data(), 1, block, block, exact.data());
    reference::hadamard(x.data(), 1, block, block, reference.data());
    double sum = 0;
    for (const float value : x) sum += std::fabs(value);
    const double length = std::sqrt(static_cast<double>(block));
    expect_close(exact, reference, 0x1p-23, static_cast<double>(block) * 0x1p-52 * sum / length);
  }
}

}  // namespace
}  // namespace k3
