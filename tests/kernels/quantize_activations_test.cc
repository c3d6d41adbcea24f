#include "kernels/quantize_activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "hwy/targets.h"
#include "kernels/row_products_cpu.h"
#include "tests/kernels/forced_target.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Quantized {
  ActivationStep step;
  std::vector<int16_t> codes;
};

Quantized quantize_exactly(const std::vector<float>& x) {
  Quantized result{{}, std::vector<int16_t>(x.size(), 99)};
  result.step = exact_quantize(x.data(), static_cast<int64_t>(x.size()), result.codes.data());
  return result;
}

TEST(QuantizeActivations, ExponentIsTheLeastThatCoversTheMagnitude) {
  const std::vector<float> fractions = {1.0F,
                                        1.5F,
                                        std::nextafter(32639.0F / 16384, 0.0F),
                                        32639.0F / 16384,
                                        std::nextafter(32639.0F / 16384, 2.0F),
                                        32640.0F / 16384,
                                        std::nextafter(2.0F, 0.0F)};
  for (int power = -149; power <= 127; ++power) {
    for (const float fraction : fractions) {
      const float magnitude = std::ldexp(fraction, power);
      const int e = activation_exponent(magnitude);
      EXPECT_LE(static_cast<double>(magnitude), std::ldexp(32639.0, e)) << magnitude;
      EXPECT_GT(static_cast<double>(magnitude), std::ldexp(32639.0, e - 1)) << magnitude;
    }
  }
}

TEST(QuantizeActivations, ExponentsSpanAllFloats) {
  EXPECT_EQ(activation_exponent(std::numeric_limits<float>::denorm_min()), -163);
  EXPECT_EQ(activation_exponent(std::numeric_limits<float>::max()), 114);
  EXPECT_EQ(activation_exponent(0.0F), 0);
}

TEST(QuantizeActivations, CodesRoundTiesToEven) {
  const Quantized q = quantize_exactly({32639.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 0.75F});
  EXPECT_EQ(q.step.exponent, 0);
  EXPECT_EQ(q.codes, (std::vector<int16_t>{32639, 0, 2, 2, 0, -2, 1}));
}

TEST(QuantizeActivations, AMagnitudeOf32640TakesTheNextStep) {
  const Quantized q = quantize_exactly({-32640.0F, 3.0F});
  EXPECT_EQ(q.step.exponent, 1);
  EXPECT_EQ(q.codes, (std::vector<int16_t>{-16320, 2}));
}

TEST(QuantizeActivations, AZeroVectorHasExponentZero) {
  const Quantized q = quantize_exactly({0.0F, -0.0F});
  EXPECT_EQ(q.step.exponent, 0);
  EXPECT_TRUE(q.step.finite);
  EXPECT_EQ(q.codes, (std::vector<int16_t>{0, 0}));
}

TEST(QuantizeActivations, AVectorWithNanOrInfinityHasNoCodesAndAllItsPowersAreNan) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    for (const size_t place : {0U, 1U, 2U}) {
      std::vector<float> x = {1.0F, 2.0F, 3.0F};
      x[place] = bad;
      const Quantized q = quantize_exactly(x);
      EXPECT_FALSE(q.step.finite);
      EXPECT_EQ(q.codes, (std::vector<int16_t>{0, 0, 0}));
      EXPECT_TRUE(std::isnan(step_power(q.step, 0)));
    }
  }
}

TEST(QuantizeActivations, NoValueMovesByMoreThanHalfAStep) {
  Random random(1);
  const std::vector<float> x = random_activations(random, 1, 5000);
  const Quantized q = quantize_exactly(x);
  const double step = std::ldexp(1.0, q.step.exponent);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(static_cast<double>(x[i]) - q.codes[i] * step), step / 2);
  }
}

TEST(QuantizeActivations, EveryTargetGivesTheExactCodes) {
  Random random(2);
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    for (int64_t n = 1; n <= 70; ++n) {
      const std::vector<float> x = random_activations(random, 7, n);
      for (int64_t t = 0; t < 7; ++t) {
        const std::vector<float> vector(x.begin() + t * n, x.begin() + (t + 1) * n);
        const Quantized want = quantize_exactly(vector);
        std::vector<int16_t> codes(vector.size(), 99);
        const ActivationStep step = cpu::quantize(vector.data(), n, codes.data());
        ASSERT_EQ(step.exponent, want.step.exponent) << hwy::TargetName(target);
        ASSERT_EQ(codes, want.codes) << hwy::TargetName(target) << ", kind " << t << ", n " << n;
      }
    }
  }
}

TEST(QuantizeActivations, EveryTargetFindsANonFiniteValueAnywhere) {
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -kInfinity}) {
      for (size_t place = 0; place < 37; ++place) {
        std::vector<float> x(37, 1.0F);
        x[place] = bad;
        std::vector<int16_t> codes(37, 99);
        EXPECT_FALSE(cpu::quantize(x.data(), 37, codes.data()).finite) << hwy::TargetName(target);
        EXPECT_EQ(codes, std::vector<int16_t>(37, 0));
      }
    }
  }
}

TEST(PowerOfTwo, IsHeldToNormalDoubles) {
  EXPECT_EQ(power_of_two(3), 8.0);
  EXPECT_EQ(power_of_two(-5000), std::numeric_limits<double>::min());
  EXPECT_EQ(power_of_two(int64_t{1} << 40), 0x1p1023);
}

}  // namespace
}  // namespace k3
