// Spends a budget over matrices, each of which can be had at several costs: the arithmetic of
// `--trunk auto`, without files or tensors.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace k3 {

// One way to store a matrix.
struct BudgetChoice {
  double cost = 0;  // bytes, or bits: the caller's unit, the same everywhere
  double kl = 0;    // what it adds alone, in nats
};

struct BudgetPlan {
  std::vector<size_t> chosen;  // by matrix: index into its choices
  double cost = 0;
  double kl = 0;  // the sum of the chosen ones
};

class BudgetLadder {
 public:
  // `matrices` has the choices of each, at least one; the order decides between equals.
  explicit BudgetLadder(std::vector<std::vector<BudgetChoice>> matrices);

  // Every matrix as cheap as it can be had.
  BudgetPlan cheapest() const;
  // The least KL within `most_cost`; the cheapest plan when even that costs more.
  BudgetPlan spend(double most_cost) const;
  // The least cost at which `accepts` the sum of KLs; the most exact plan when none is accepted.
  // What accepts a sum accepts every smaller one.
  BudgetPlan reach(const std::function<bool(double kl)>& accepts) const;

 private:
  struct Step {
    size_t matrix;
    size_t from, to;  // choices
    double cost, gain;
  };
  void take(const Step& step, BudgetPlan& plan) const;
  BudgetPlan summed(BudgetPlan plan) const;

  std::vector<std::vector<BudgetChoice>> matrices_;
  std::vector<Step> steps_;  // the best first
};

}  // namespace k3
