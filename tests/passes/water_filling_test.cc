#include "passes/water_filling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace k3 {
namespace {

TEST(WaterFilling, WhiteInputsLeaveOneThirdToATrit) {
  const std::vector<double> white(100, 7.0);
  EXPECT_NEAR(least_error(white, std::log2(3.0)), 1.0 / 3, 1e-9);
  EXPECT_NEAR(least_error(white, 2 * std::log2(3.0)), 1.0 / 9, 1e-9);
  EXPECT_NEAR(spectral_flatness(white), 1, 1e-12);
}

TEST(WaterFilling, IsTheHandWorkedOneForTwoComponents) {
  const std::vector<double> two = {1, 4};
  // A quarter bit a weight is half a bit for the larger one: level 2, of which 1 + 2 of 5 is lost.
  EXPECT_NEAR(least_error(two, 0.25), std::sqrt(3.0 / 5), 1e-9);
  // At half a bit the level reaches the smaller one.
  EXPECT_NEAR(least_error(two, 0.5), std::sqrt(2.0 / 5), 1e-9);
  // Above, every component takes its share: 2^-R sqrt(GM / AM).
  EXPECT_NEAR(least_error(two, 1.5), std::exp2(-1.5) * std::sqrt(2 / 2.5), 1e-9);
  EXPECT_NEAR(spectral_flatness(two), std::sqrt(2 / 2.5), 1e-12);
}

TEST(WaterFilling, BitsAreTheInverseOfError) {
  const std::vector<double> spectrum = {0.001, 0.1, 1, 30};
  for (const double bits : {0.1, 0.7, 1.66, 3.27, 8.0}) {
    EXPECT_NEAR(least_bits(spectrum, least_error(spectrum, bits)), bits, 1e-9);
  }
}

TEST(WaterFilling, NothingIsFreeAndNothingCostsNothing) {
  const std::vector<double> spectrum = {1, 2};
  EXPECT_EQ(least_error(spectrum, 0), 1);
  EXPECT_EQ(least_bits(spectrum, 1), 0);
  EXPECT_TRUE(std::isinf(least_bits(spectrum, 0)));
  EXPECT_EQ(least_error({}, 1), 0);
}

TEST(WaterFilling, ComponentsWithoutEnergyNeedNoBits) {
  const std::vector<double> half = {0, 4};
  EXPECT_NEAR(least_error(half, 1), std::exp2(-2), 1e-9);
  EXPECT_EQ(spectral_flatness(half), 0);
}

TEST(GramSpectrum, IsTheHandWorkedOneWithoutInputsThatAreAlwaysZero) {
  const std::vector<float> gram = {2, 0, 1, 0, 0, 0, 1, 0, 2};
  const std::vector<double> spectrum = gram_spectrum(gram, 3);
  ASSERT_EQ(spectrum.size(), 2U);
  EXPECT_NEAR(spectrum[0], 1, 1e-12);
  EXPECT_NEAR(spectrum[1], 3, 1e-12);
  EXPECT_TRUE(gram_spectrum(std::vector<float>(4), 2).empty());
}

}  // namespace
}  // namespace k3
