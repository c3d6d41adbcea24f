#include "passes/trunk_budget.h"

#include <gtest/gtest.h>

#include <cmath>

namespace k3 {
namespace {

using Chosen = std::vector<size_t>;

// Choice 0 is the dear and exact one, as the base's form is.
const std::vector<std::vector<BudgetChoice>> kTwo = {
    {{16, 0}, {8, 0.001}, {2, 0.5}},
    {{16, 0}, {8, 0.002}, {2, 0.1}},
};

TEST(TrunkBudget, SpendsWhereAByteSavesMost) {
  const BudgetLadder ladder(kTwo);
  EXPECT_EQ(ladder.spend(4).chosen, (Chosen{2, 2}));
  EXPECT_EQ(ladder.spend(10).chosen, (Chosen{1, 2}));  // 0.499 for 6, against 0.098 for 6
  EXPECT_EQ(ladder.spend(16).chosen, (Chosen{1, 1}));
  EXPECT_EQ(ladder.spend(24).chosen, (Chosen{1, 0}));
  EXPECT_EQ(ladder.spend(HUGE_VAL).chosen, (Chosen{0, 0}));
  EXPECT_DOUBLE_EQ(ladder.spend(10).kl, 0.101);
  EXPECT_EQ(ladder.spend(10).cost, 10);
}

TEST(TrunkBudget, WhatIsTooSmallGivesTheCheapestPlan) {
  const BudgetPlan plan = BudgetLadder(kTwo).spend(3);
  EXPECT_EQ(plan.chosen, (Chosen{2, 2}));
  EXPECT_EQ(plan.cost, 4);
}

TEST(TrunkBudget, ReachesABoundAtTheLeastCost) {
  const BudgetLadder ladder(kTwo);
  const auto reach = [&](double bound) {
    return ladder.reach([bound](double kl) { return kl <= bound; });
  };
  EXPECT_EQ(reach(1).chosen, (Chosen{2, 2}));
  EXPECT_EQ(reach(0.2).chosen, (Chosen{1, 2}));
  EXPECT_EQ(reach(0.0015).chosen, (Chosen{1, 0}));
  EXPECT_EQ(reach(0).kl, 0);
  EXPECT_EQ(reach(-1).chosen, (Chosen{0, 0}));  // none is accepted: the most exact
}

TEST(TrunkBudget, AStepThatDoesNotFitLeavesRoomForASmallerOne) {
  const BudgetLadder ladder({{{100, 0}, {10, 10}}, {{4, 0}, {2, 0.001}}});
  EXPECT_EQ(ladder.spend(14).chosen, (Chosen{1, 0}));
}

TEST(TrunkBudget, WhatCostsMoreAndSavesNothingIsNeverChosen) {
  // The second choice is noise: dearer than the third and no better.
  const BudgetLadder ladder({{{16, 0}, {8, 2e-6}, {4, 1e-6}, {2, 0.3}}});
  EXPECT_EQ(ladder.spend(8).chosen, (Chosen{2}));
  EXPECT_EQ(ladder.spend(16).chosen, (Chosen{0}));
}

TEST(TrunkBudget, AChoiceAboveTheHullIsPassedOver) {
  // From 2 to 8 in one step saves 0.1 a byte; 4 would save 0.05 first.
  const BudgetLadder ladder({{{8, 0}, {4, 0.5}, {2, 0.6}}});
  EXPECT_EQ(ladder.spend(4).chosen, (Chosen{2}));
  EXPECT_EQ(ladder.spend(8).chosen, (Chosen{0}));
}

}  // namespace
}  // namespace k3
