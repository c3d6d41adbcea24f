#include "passes/kl_forecast.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

KlForecast forecast_of(std::vector<JointSwap> whole) {
  Sensitivity sensitivity;
  sensitivity.whole = std::move(whole);
  return KlForecast(sensitivity);
}

TEST(KlForecast, WholeSwapsArePredictedAsMeasured) {
  const KlForecast forecast = forecast_of({{0, 1, 0.04, 0.05}, {1, 1, 1e-4, 3e-4}});
  EXPECT_DOUBLE_EQ(forecast.at(0.05), 0.04);
  EXPECT_NEAR(forecast.at(3e-4), 1e-4, 1e-18);
}

TEST(KlForecast, BeyondTheMeasuredPointsTheirRatioHolds) {
  const KlForecast forecast = forecast_of({{0, 1, 0.04, 0.05}, {1, 1, 1e-4, 4e-4}});
  EXPECT_DOUBLE_EQ(forecast.at(0.5), 0.4);
  EXPECT_DOUBLE_EQ(forecast.at(4e-6), 1e-6);
  EXPECT_EQ(forecast.at(0), 0);
}

TEST(KlForecast, MoreHarmNeverPredictsLess) {
  const KlForecast forecast = forecast_of({{0, 1, 0.03, 0.02}, {1, 1, 0.01, 0.05}});
  double last = 0;
  for (double sum = 1e-3; sum < 1; sum *= 1.1) {
    EXPECT_GE(forecast.at(sum), last) << sum;
    last = forecast.at(sum);
  }
}

TEST(KlForecast, WithoutAMeasurementKlsAddUp) {
  EXPECT_DOUBLE_EQ(forecast_of({}).at(0.25), 0.25);
}

}  // namespace
}  // namespace k3
