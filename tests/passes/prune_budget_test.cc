#include "passes/prune_budget.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

TEST(PruneBudget, TheCheapestDropsGoFirstWhereverTheyAre) {
  const std::vector<std::vector<double>> losses = {{0.1, 0.2, 0.9}, {0.5, 0.6, 0.7}};
  EXPECT_EQ(spread_budget(losses, 1, 6), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(spread_budget(losses, 1, 4), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(spread_budget(losses, 1, 3), (std::vector<int64_t>{1, 2}));
}

TEST(PruneBudget, NoLayerFallsBelowTheFloor) {
  const std::vector<std::vector<double>> losses = {{0, 0, 0, 0}, {9, 9, 9, 9}};
  EXPECT_EQ(spread_budget(losses, 2, 5), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(spread_budget(losses, 2, 4), (std::vector<int64_t>{2, 2}));
}

TEST(PruneBudget, ABudgetBeyondAllKeepsAll) {
  const std::vector<std::vector<double>> losses = {{1, 2}};
  EXPECT_EQ(spread_budget(losses, 1, 100), (std::vector<int64_t>{2}));
}

TEST(PruneBudget, EqualLossesDropFromTheLowerLayer) {
  const std::vector<std::vector<double>> losses = {{1, 1}, {1, 1}};
  EXPECT_EQ(spread_budget(losses, 0, 2), (std::vector<int64_t>{0, 2}));
}

// The dear expert comes first in its layer's order: it can only go together with the free one
// behind it, at their mean.
TEST(PruneBudget, ADearExpertInFrontOfACheapOneCostsTheirMean) {
  const std::vector<std::vector<double>> losses = {{8, 0}, {5, 5}};
  EXPECT_EQ(spread_budget(losses, 0, 2), (std::vector<int64_t>{0, 2}));
  const std::vector<std::vector<double>> dearer = {{11, 0}, {5, 5}};
  EXPECT_EQ(spread_budget(dearer, 0, 2), (std::vector<int64_t>{2, 0}));
}

TEST(PruneBudget, RisingKeepsSumsAndPoolsWhatFalls) {
  const std::vector<double> values = {1, 5, 3, 4, 2, 9};
  EXPECT_EQ(rising(values), (std::vector<double>{1, 3.5, 3.5, 3.5, 3.5, 9}));
}

}  // namespace
}  // namespace k3
