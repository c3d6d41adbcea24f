#include "runtime/benchmark.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

TEST(Benchmark, EachRoundIsHeldAgainstWhatMemoryGaveBesideIt) {
  const OperationCosts round = {
      {"rms norm", {.calls = 1, .seconds = 3, .bytes = 400}},
      {"matmul ternary",
       {.calls = 2, .seconds = 5, .bytes = 1000, .weights = 6000, .format = Format::kTernary}}};
  const CacheRates cache_rates = {{Format::kTernary, 1000.0}};
  OperationTotals totals;
  // Reading takes 4 and 10 seconds, then 1 and 2.5; from the cache the ternary weights take 6.
  EXPECT_DOUBLE_EQ(add_round(round, 100, cache_rates, totals), 4 + 10);
  EXPECT_DOUBLE_EQ(add_round(round, 400, cache_rates, totals), 1 + 6);
  EXPECT_EQ(totals["matmul ternary"].cost.calls, 4);
  EXPECT_EQ(totals["matmul ternary"].cost.bytes, 2000);
  EXPECT_DOUBLE_EQ(totals["matmul ternary"].cost.seconds, 10);
  EXPECT_DOUBLE_EQ(totals["matmul ternary"].read_seconds, 12.5);
  EXPECT_DOUBLE_EQ(totals["matmul ternary"].least_seconds, 16);
  EXPECT_DOUBLE_EQ(totals["rms norm"].least_seconds, 5);
}

}  // namespace
}  // namespace k3
