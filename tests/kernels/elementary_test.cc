#include "kernels/elementary.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

namespace k3 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kHuge = std::numeric_limits<float>::max();
constexpr float kSubnormal = 0x1p-140f;

using Exact = float (*)(float);
using Truth = long double (*)(long double);

long double sigmoid_truth(long double x) {
  return 1 / (1 + expl(-x));
}
long double softplus_truth(long double x) {
  return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}
long double silu_truth(long double x) {
  return x / (1 + expl(-x));
}

// |got - truth| in units of the last place of a float near the truth.
double ulps(float got, long double truth) {
  int exponent = 0;
  std::frexp(static_cast<float>(fabsl(truth)), &exponent);
  const long double ulp = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(fabsl(got - truth) / ulp);
}

void expect_nearest(Exact exact, Truth truth, float from, float to) {
  constexpr int kSteps = 1 << 15;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = from + (to - from) * (static_cast<float>(i) / kSteps);
    ASSERT_LE(ulps(exact(x), truth(x)), 0.5 + 0x1p-24) << "at " << x;
  }
}

// Over every float from `from` on, `count` of them.
void expect_monotone(Exact exact, float from, int count) {
  float before = exact(from);
  float x = from;
  for (int i = 0; i < count; ++i) {
    x = std::nextafter(x, kInfinity);
    const float y = exact(x);
    ASSERT_GE(y, before) << "at " << x;
    before = y;
  }
}

TEST(Elementary, ExpIsNearest) {
  expect_nearest(exact_exp, expl, -104, 88.7f);
  expect_nearest(exact_exp, expl, -0.01f, 0.01f);
}

TEST(Elementary, SigmoidIsNearest) {
  expect_nearest(exact_sigmoid, sigmoid_truth, -104, 40);
  expect_nearest(exact_sigmoid, sigmoid_truth, -1, 1);
}

TEST(Elementary, TanhIsNearest) {
  expect_nearest(exact_tanh, tanhl, -20, 20);
  expect_nearest(exact_tanh, tanhl, -0.5f, 0.5f);
  expect_nearest(exact_tanh, tanhl, -1e-20f, 1e-20f);
}

TEST(Elementary, SoftplusIsNearest) {
  expect_nearest(exact_softplus, softplus_truth, -100, 100);
  expect_nearest(exact_softplus, softplus_truth, -1, 1);
}

TEST(Elementary, SiluIsNearest) {
  expect_nearest(exact_silu, silu_truth, -100, 100);
}

TEST(Elementary, FunctionsAreMonotone) {
  for (float from : {-80.0f, -2.0f, -0x1p-10f, 0x1p-10f, 0.3465f, 1.0f, 8.9f}) {
    expect_monotone(exact_exp, from, 20000);
    expect_monotone(exact_sigmoid, from, 20000);
    expect_monotone(exact_tanh, from, 20000);
    expect_monotone(exact_softplus, from, 20000);
  }
}

TEST(Elementary, ZeroIsExact) {
  EXPECT_EQ(exact_exp(0.0f), 1.0f);
  EXPECT_EQ(exact_exp(-0.0f), 1.0f);
  EXPECT_EQ(exact_sigmoid(0.0f), 0.5f);
  EXPECT_EQ(exact_softplus(0.0f), static_cast<float>(std::log(2.0)));
  EXPECT_EQ(std::bit_cast<uint32_t>(exact_tanh(0.0f)), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(exact_tanh(-0.0f)), 0x80000000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(exact_silu(-0.0f)), 0x80000000u);
}

TEST(Elementary, InfinitiesGiveTheLimits) {
  EXPECT_EQ(exact_exp(kInfinity), kInfinity);
  EXPECT_EQ(exact_exp(-kInfinity), 0.0f);
  EXPECT_EQ(exact_sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(exact_sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(exact_tanh(kInfinity), 1.0f);
  EXPECT_EQ(exact_tanh(-kInfinity), -1.0f);
  EXPECT_EQ(exact_softplus(kInfinity), kInfinity);
  EXPECT_EQ(exact_softplus(-kInfinity), 0.0f);
  EXPECT_EQ(exact_silu(kInfinity), kInfinity);
  EXPECT_EQ(exact_silu(-kInfinity), -kInfinity);
}

TEST(Elementary, NanStaysNan) {
  for (Exact exact : {exact_exp, exact_sigmoid, exact_tanh, exact_softplus, exact_silu}) {
    EXPECT_TRUE(std::isnan(exact(kNan)));
    EXPECT_TRUE(std::isnan(exact(-kNan)));
  }
}

TEST(Elementary, HugeArgumentsSaturateExactly) {
  EXPECT_EQ(exact_exp(kHuge), kInfinity);
  EXPECT_EQ(exact_exp(-kHuge), 0.0f);
  EXPECT_EQ(exact_sigmoid(kHuge), 1.0f);
  EXPECT_EQ(exact_sigmoid(-kHuge), 0.0f);
  EXPECT_EQ(exact_tanh(kHuge), 1.0f);
  EXPECT_EQ(exact_tanh(20.0f), 1.0f);
  EXPECT_EQ(tanh_in_double(20.0), 1.0);
  EXPECT_EQ(sigmoid_in_double(38.0), 1.0);
  EXPECT_EQ(exact_softplus(kHuge), kHuge);
  EXPECT_EQ(exact_silu(-kHuge), 0.0f);
}

TEST(Elementary, SubnormalArgumentsAndResultsAreKept) {
  EXPECT_EQ(exact_tanh(kSubnormal), kSubnormal);
  EXPECT_EQ(exact_silu(kSubnormal), kSubnormal / 2);
  EXPECT_EQ(exact_exp(kSubnormal), 1.0f);
  EXPECT_EQ(exact_exp(-100.0f), static_cast<float>(expl(-100.0L)));
  EXPECT_LT(exact_exp(-100.0f), std::numeric_limits<float>::min());
  EXPECT_GT(exact_exp(-103.9f), 0.0f);
  EXPECT_EQ(exact_exp(-104.0f), 0.0f);
  EXPECT_EQ(exact_exp(88.72283f), static_cast<float>(expl(88.72283f)));
  EXPECT_EQ(exact_exp(88.8f), kInfinity);
}

TEST(Elementary, TanhIsOdd) {
  for (float x = 0.001f; x < 25; x *= 1.01f) EXPECT_EQ(exact_tanh(-x), -exact_tanh(x));
}

TEST(Elementary, SigmoidsOfOppositeArgumentsAddToOne) {
  for (double x = 0.001; x < 40; x *= 1.01) {
    EXPECT_NEAR(sigmoid_in_double(x) + sigmoid_in_double(-x), 1.0, 0x1p-51);
  }
}

}  // namespace
}  // namespace k3
