#include "runtime/divergence.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace k3 {
namespace {

TEST(Divergence, OfTwoOutcomesIsAsWorkedByHand) {
  const std::array<float, 2> even = {3, 3};
  const std::array<float, 2> three_to_one = {std::log(3.0F), 0};
  EXPECT_DOUBLE_EQ(log_sum_exp(even), 3 + std::log(2.0));
  EXPECT_NEAR(log_sum_exp(three_to_one), std::log(4.0), 1e-7);
  // 1/2 log(2/3) + 1/2 log 2
  EXPECT_NEAR(divergence(even, log_sum_exp(even), three_to_one, log_sum_exp(three_to_one)),
              0.5 * std::log(4.0 / 3), 1e-7);
  EXPECT_EQ(divergence(even, log_sum_exp(even), even, log_sum_exp(even)), 0);
}

TEST(Divergence, LargeLogitsDoNotOverflow) {
  const std::array<float, 3> logits = {1e5F, -1e5F, 1e5F};
  EXPECT_DOUBLE_EQ(log_sum_exp(logits), 1e5 + std::log(2.0));
}

}  // namespace
}  // namespace k3
