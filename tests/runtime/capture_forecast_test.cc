#include "runtime/capture_forecast.h"

#include <gtest/gtest.h>

#include "compiler/kimi_k3_config.h"
#include "schema/kimi_k3_release.h"

namespace k3 {
namespace {

TEST(KimiK3Release, IsWhatItsConfigJsonSays) {
  const ConfigFile file(K3_SOURCE_DIR "/tests/golden/kimi-k3-config.json");
  EXPECT_EQ(kimi_k3_release(), read_kimi_k3_config(file));
}

// A machine of round numbers, so that the forecast is K3's own numbers.
TEST(CaptureForecast, ScalesEachPartByWhatLimitsIt) {
  const CaptureCost cost{.read_seconds = 1,
                         .weight_bytes = 1'000'000'000,
                         .forward_seconds = 1,
                         .forward_products = 1'000'000'000'000,
                         .spill_seconds = 1,
                         .spill_bytes = 1'000'000'000,
                         .gram_seconds = 1,
                         .gram_products = 1'000'000'000'000,
                         .store_seconds = 1,
                         .stored_sums = 1'000'000'000,
                         .stored_bytes = 8'000'000'000};
  const CaptureForecast forecast = forecast_capture(cost, kimi_k3_release(), 200'000);
  EXPECT_NEAR(forecast.read_seconds, 1517, 15);                 // 1.40 TB experts, 0.11 TB trunk
  EXPECT_NEAR(forecast.forward_seconds, 0.103 * 200'000, 500);  // 54 + 49 billion products a token
  EXPECT_NEAR(static_cast<double>(forecast.stream_bytes), 200e3 * 10 * 7168 * 4, 1);
  EXPECT_GT(forecast.calibration_bytes, 2 * 105'000'000'000);  // 8 bytes a sum, two halves
  EXPECT_LT(forecast.calibration_bytes, 2 * 125'000'000'000);
  EXPECT_NEAR(static_cast<double>(forecast.layer_memory_bytes), 16.3e9, 0.5e9);
  EXPECT_GT(forecast.seconds(), forecast.forward_seconds + forecast.gram_seconds);
}

}  // namespace
}  // namespace k3
