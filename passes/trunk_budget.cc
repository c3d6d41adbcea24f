// A knapsack in which every matrix takes one of its choices. Of a matrix only the choices on the
// lower convex hull of KL over cost can be part of a best plan at the Lagrangian's prices, and
// between neighbours on the hull a step has one rate: KL saved per cost. The steps of all matrices,
// sorted by rate, are the ladder; a matrix's own steps fall in rate, so they come in order. Taking
// steps from the top is optimal at every cost where the ladder has a rung, and off by less than one
// step between.
//
// Measured KLs are not quite monotone: near zero they are the noise of a few routing decisions. A
// choice that costs more than another and saves nothing is off the hull, which is all that needs to
// be said about it.
#include "passes/trunk_budget.h"

#include <algorithm>

#include "schema/error.h"

namespace k3 {
namespace {

// Indices of the choices on the lower convex hull, by rising cost and falling KL.
std::vector<size_t> lower_hull(const std::vector<BudgetChoice>& choices) {
  std::vector<size_t> order(choices.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return choices[a].cost != choices[b].cost ? choices[a].cost < choices[b].cost
                                              : choices[a].kl < choices[b].kl;
  });
  const auto rate = [&](size_t a, size_t b) {
    return (choices[a].kl - choices[b].kl) / (choices[b].cost - choices[a].cost);
  };
  std::vector<size_t> hull;
  for (const size_t next : order) {
    if (!hull.empty() && choices[next].kl >= choices[hull.back()].kl) continue;
    while (hull.size() >= 2 &&
           rate(hull[hull.size() - 2], hull.back()) <= rate(hull.back(), next)) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

}  // namespace

BudgetLadder::BudgetLadder(std::vector<std::vector<BudgetChoice>> matrices)
    : matrices_(std::move(matrices)) {
  for (size_t i = 0; i < matrices_.size(); ++i) {
    K3_CHECK(!matrices_[i].empty());
    const std::vector<size_t> hull = lower_hull(matrices_[i]);
    for (size_t rung = 1; rung < hull.size(); ++rung) {
      const BudgetChoice& from = matrices_[i][hull[rung - 1]];
      const BudgetChoice& to = matrices_[i][hull[rung]];
      steps_.push_back({i, hull[rung - 1], hull[rung], to.cost - from.cost, from.kl - to.kl});
    }
  }
  std::stable_sort(steps_.begin(), steps_.end(),
                   [](const Step& a, const Step& b) { return a.gain * b.cost > b.gain * a.cost; });
}

BudgetPlan BudgetLadder::cheapest() const {
  BudgetPlan plan;
  for (const std::vector<BudgetChoice>& choices : matrices_) {
    plan.chosen.push_back(lower_hull(choices).front());
  }
  return summed(std::move(plan));
}

// With its sums added up anew, so that they do not depend on the way to it.
BudgetPlan BudgetLadder::summed(BudgetPlan plan) const {
  plan.cost = 0;
  plan.kl = 0;
  for (size_t i = 0; i < matrices_.size(); ++i) {
    plan.cost += matrices_[i][plan.chosen[i]].cost;
    plan.kl += matrices_[i][plan.chosen[i]].kl;
  }
  return plan;
}

void BudgetLadder::take(const Step& step, BudgetPlan& plan) const {
  K3_CHECK(plan.chosen[step.matrix] == step.from);
  plan.chosen[step.matrix] = step.to;
  plan.cost += step.cost;
  plan.kl -= step.gain;
}

BudgetPlan BudgetLadder::spend(double most_cost) const {
  BudgetPlan plan = cheapest();
  std::vector<bool> stopped(matrices_.size());
  for (const Step& step : steps_) {
    // What does not fit ends its matrix' ladder, but a smaller step of another may still fit.
    if (stopped[step.matrix]) continue;
    if (plan.cost + step.cost <= most_cost) {
      take(step, plan);
    } else {
      stopped[step.matrix] = true;
    }
  }
  return summed(std::move(plan));
}

BudgetPlan BudgetLadder::reach(const std::function<bool(double kl)>& accepts) const {
  BudgetPlan plan = cheapest();
  for (const Step& step : steps_) {
    if (accepts(plan.kl)) break;
    take(step, plan);
  }
  return summed(std::move(plan));
}

}  // namespace k3
