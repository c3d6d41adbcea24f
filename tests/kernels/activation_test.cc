#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

constexpr GluRule kSituRule{Activation::kSitu, 4.0, 25.0};
constexpr GluRule kSiluRule{Activation::kSilu, 0.0, 0.0};

TEST(Activation, SituReachesItsCapsAndNeverPassesThem) {
  EXPECT_EQ(exact_glu(kSituRule, 1000.0f, 1000.0f), 100.0f);
  EXPECT_EQ(exact_glu(kSituRule, 1000.0f, -1000.0f), -100.0f);
  for (float gate = -1000; gate <= 1000; gate += 7.3f) {
    for (float up : {-1e30f, -300.0f, -25.0f, 24.0f, 300.0f}) {
      ASSERT_LE(std::abs(exact_glu(kSituRule, gate, up)), 100.0f);
    }
  }
}

TEST(Activation, SituSigmoidTakesTheRawGate) {
  // tanh(2) = 0.96402758; the sigmoid of the capped gate 3.856 would be 0.9793.
  const double gate = 4.0 * 0.9640275800758169 * (1.0 / (1.0 + std::exp(-8.0)));
  const double up = 25.0 * std::tanh(1.0 / 25.0);
  EXPECT_EQ(exact_glu(kSituRule, 8.0f, 1.0f), static_cast<float>(gate * up));
}

TEST(Activation, SituOfSmallInputsIsSiluOfThem) {
  EXPECT_NEAR(exact_glu(kSituRule, 1e-3f, 1e-2f), exact_glu(kSiluRule, 1e-3f, 1e-2f), 1e-12);
}

TEST(Activation, SiluGluOfOneIsTheSigmoidTimesUp) {
  EXPECT_EQ(exact_glu(kSiluRule, 1.0f, 2.0f), static_cast<float>(2.0 / (1.0 + std::exp(-1.0))));
}

TEST(Activation, ZeroGateGivesZero) {
  EXPECT_EQ(exact_glu(kSituRule, 0.0f, 3.0f), 0.0f);
  EXPECT_EQ(exact_glu(kSiluRule, 0.0f, 3.0f), 0.0f);
}

TEST(Activation, NanPropagates) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const GluRule& rule : {kSituRule, kSiluRule}) {
    EXPECT_TRUE(std::isnan(exact_glu(rule, nan, 1.0f)));
    EXPECT_TRUE(std::isnan(exact_glu(rule, 1.0f, nan)));
  }
  EXPECT_TRUE(std::isnan(exact_sigmoid_gate(1.0f, nan)));
  EXPECT_TRUE(std::isnan(exact_sigmoid_gate(nan, 1.0f)));
}

TEST(Activation, CpuGivesTheExactBits) {
  on_every_target([] {
    for (int64_t n : {1, 7, 16, 33, 20011}) {
      const auto gate = normal_values(n, 1, 5.0f);
      const auto up = normal_values(n, 2, 20.0f);
      std::vector<float> got(gate.size());
      std::vector<float> want(gate.size());
      for (const GluRule& rule : {kSituRule, kSiluRule}) {
        cpu::glu(rule, gate.data(), up.data(), n, got.data());
        for (size_t i = 0; i < want.size(); ++i) want[i] = exact_glu(rule, gate[i], up[i]);
        expect_same_bits(got, want);
      }
      got = up;
      cpu::sigmoid_gate(got.data(), gate.data(), n, got.data());
      for (size_t i = 0; i < want.size(); ++i) want[i] = exact_sigmoid_gate(up[i], gate[i]);
      expect_same_bits(got, want);

      got = up;
      cpu::add(got.data(), gate.data(), n, got.data());
      for (size_t i = 0; i < want.size(); ++i) want[i] = up[i] + gate[i];
      expect_same_bits(got, want);
    }
  });
}

TEST(Activation, ExactIsWithinAnUlpOfReference) {
  const int64_t n = 4000;
  const auto gate = normal_values(n, 3, 5.0f);
  const auto up = normal_values(n, 4, 20.0f);
  std::vector<float> exact(gate.size());
  std::vector<float> reference(gate.size());
  for (const GluRule& rule : {kSituRule, kSiluRule}) {
    cpu::glu(rule, gate.data(), up.data(), n, exact.data());
    reference::glu(rule, gate.data(), up.data(), n, reference.data());
    expect_close(exact, reference, 0x1p-23, 0);
  }
  cpu::sigmoid_gate(up.data(), gate.data(), n, exact.data());
  reference::sigmoid_gate(up.data(), gate.data(), n, reference.data());
  expect_close(exact, reference, 0x1p-23, 0);
  cpu::add(up.data(), gate.data(), n, exact.data());
  reference::add(up.data(), gate.data(), n, reference.data());
  expect_same_bits(exact, reference);
}

}  // namespace
}  // namespace k3
