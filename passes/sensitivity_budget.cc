// What a byte buys is measured, not guessed: the .k3sens file has the KL of every matrix in every
// format that was tried, alone. This pass spends bytes where they save most of it
// (trunk_budget.cc) and predicts what is left over (kl_forecast.cc). The prediction is no result:
// `k3exec eval --max-kl` measures that on other text.
//
// Costs are stored bytes, or nominal bits a weight: what the formats take where rows fill their
// blocks, which lets a small model with narrow rows stand for a wide one.
#include "passes/sensitivity_budget.h"

#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "passes/kl_forecast.h"
#include "passes/planned_extent.h"
#include "passes/trunk_budget.h"
#include "passes/weight_rows.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/sensitivity.h"

namespace k3 {
namespace {

constexpr double kGigabyte = 1e9;

double nominal_bits(Format format) {
  switch (format) {
    case Format::kF32:
      return 32;
    case Format::kInt8:
      return 8.05;
    case Format::kTernary2:
      return 3.27;
    case Format::kTernary:
      return 1.66;
    case Format::kBf16:
    case Format::kMxfp4:
      break;
  }
  return 16;
}

void set_format(TrunkTensor& tensor, Format format) {
  tensor.format = format;
  tensor.layout = lies_in_blocks160(format) ? Layout::kBlocks160 : Layout::kRowMajor;
}

double weights_of(const TrunkTensor& tensor) {
  return static_cast<double>(tensor.shape.elements().value_or(0));
}

double bytes_in(const TrunkTensor& tensor, Format format) {
  TrunkTensor planned = tensor;
  set_format(planned, format);
  return static_cast<double>(planned_bytes(planned));
}

// One way to store one matrix, with the bytes that were measured; none for the base's own form,
// which is exact by definition.
struct Offer {
  Format format = Format::kBf16;
  std::optional<uint64_t> extent_xxh3;
  double kl = 0;
};

struct BudgetedMatrix {
  size_t tensor = 0;  // index into model.trunk
  std::vector<Offer> offers;
};

class Budget {
 public:
  Budget(const Model& model, const TrunkBudget& asked, Progress& progress)
      : model_(model),
        asked_(asked),
        sensitivity_(read_sensitivity(asked.sensitivity)),
        forecast_(sensitivity_) {
    int64_t bytes = 0;
    for (const TrunkTensor& tensor : model.trunk) {
      if (tensor.may_quantize) bytes += tensor.source.length_bytes;
    }
    progress.start("hash", bytes);
    for (size_t i = 0; i < model.trunk.size(); ++i) {
      const TrunkTensor& tensor = model.trunk[i];
      if (tensor.may_quantize) {
        add(i);
        progress.advance(tensor.source.length_bytes);
      } else if (in_trunk(tensor.family)) {
        exact_bytes_ += static_cast<double>(planned_bytes(tensor));
      }
    }
    progress.finish();
  }

  const std::vector<BudgetedMatrix>& matrices() const { return matrices_; }
  double forecast(const BudgetPlan& plan) const { return forecast_.at(plan.kl); }
  int64_t positions() const { return sensitivity_.positions; }
  uint64_t sensitivity_xxh3() const { return sensitivity_.file_xxh3; }

  // The whole trunk's, whatever the unit of the plan's cost.
  double bytes(const BudgetPlan& plan) const {
    double sum = exact_bytes_;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      sum += bytes_in(tensor(i), matrices_[i].offers[plan.chosen[i]].format);
    }
    return sum;
  }
  double average_bits(const BudgetPlan& plan) const {
    double bits = 0;
    double weights = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      bits += weights_of(tensor(i)) * nominal_bits(matrices_[i].offers[plan.chosen[i]].format);
      weights += weights_of(tensor(i));
    }
    return weights > 0 ? bits / weights : 0;
  }

  // Within the budget and, where one is asked for, the bound on KL.
  BudgetPlan choose() const {
    const BudgetLadder ladder(costs());
    if (!asked_.max_kl) {
      BudgetPlan plan = ladder.spend(limit());
      if (!affordable(plan)) fail_to_afford(plan);
      return plan;
    }
    BudgetPlan plan = ladder.reach([&](double kl) { return forecast_.at(kl) <= *asked_.max_kl; });
    if (forecast(plan) <= *asked_.max_kl && affordable(plan)) return plan;
    fail_to_reach(plan, ladder.spend(limit()));
  }

 private:
  const TrunkTensor& tensor(size_t matrix) const { return model_.trunk[matrices_[matrix].tensor]; }

  void add(size_t index) {
    const TrunkTensor& tensor = model_.trunk[index];
    const MatrixSensitivity* measured = sensitivity_.find(tensor.name);
    if (measured == nullptr) {
      throw Error(asked_.sensitivity, ": tensor ", tensor.name, ": was not measured");
    }
    if (const uint64_t hash = hash_source(model_, tensor); hash != measured->source_xxh3) {
      throw Error(asked_.sensitivity, ": tensor ", tensor.name, ": was measured on weights ",
                  hex_digits(measured->source_xxh3), ", the checkpoint has ", hex_digits(hash));
    }
    BudgetedMatrix matrix{.tensor = index, .offers = {{measured->format, std::nullopt, 0}}};
    for (const MatrixSwap& swap : measured->swaps) {
      matrix.offers.push_back({swap.format, swap.extent_xxh3, swap.kl});
    }
    matrices_.push_back(std::move(matrix));
  }

  std::vector<std::vector<BudgetChoice>> costs() const {
    std::vector<std::vector<BudgetChoice>> all;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      std::vector<BudgetChoice>& choices = all.emplace_back();
      for (const Offer& offer : matrices_[i].offers) {
        choices.push_back({asked_.average_bits ? weights_of(tensor(i)) * nominal_bits(offer.format)
                                               : bytes_in(tensor(i), offer.format),
                           offer.kl});
      }
    }
    return all;
  }

  // In the unit of costs().
  double limit() const {
    if (asked_.gigabytes) return *asked_.gigabytes * kGigabyte - exact_bytes_;
    if (!asked_.average_bits) return HUGE_VAL;
    double weights = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) weights += weights_of(tensor(i));
    return *asked_.average_bits * weights;
  }
  bool affordable(const BudgetPlan& plan) const { return plan.cost <= limit(); }

  std::string describe(const BudgetPlan& plan) const {
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(), "%.6f GB, %.3f nominal bits a weight, KL %.4g",
                  bytes(plan) / kGigabyte, average_bits(plan), forecast(plan));
    return text.data();
  }
  [[noreturn]] void fail_to_afford(const BudgetPlan& cheapest) const {
    throw Error(asked_.sensitivity, ": the trunk does not fit the budget; the least is ",
                describe(cheapest));
  }
  [[noreturn]] void fail_to_reach(const BudgetPlan& exact, const BudgetPlan& spent) const {
    if (!affordable(spent)) fail_to_afford(spent);
    if (forecast(exact) > *asked_.max_kl) {
      throw Error(asked_.sensitivity, ": a predicted KL of ", *asked_.max_kl,
                  " is out of reach at any size; the best point is ", describe(exact));
    }
    throw Error(asked_.sensitivity, ": a predicted KL of ", *asked_.max_kl,
                " is out of reach within the budget; the best point there is ", describe(spent),
                "; the bound takes ", describe(exact));
  }

  const Model& model_;
  const TrunkBudget& asked_;
  Sensitivity sensitivity_;
  KlForecast forecast_;
  std::vector<BudgetedMatrix> matrices_;
  double exact_bytes_ = 0;  // of trunk tensors that stay as they are
};

void note_plan(const Budget& budget, const BudgetPlan& plan, PassContext& context) {
  std::map<Format, int64_t> counts;
  for (size_t i = 0; i < plan.chosen.size(); ++i) {
    ++counts[budget.matrices()[i].offers[plan.chosen[i]].format];
  }
  std::string formats;
  for (const auto& [format, count] : counts) {
    formats += (formats.empty() ? "" : ", ") + std::to_string(count) + " in " +
               std::string(format_name(format));
  }
  const double forecast = budget.forecast(plan);
  const double additivity = plan.kl > 0 ? forecast / plan.kl : 1;
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                "the trunk takes %.6f GB, %.3f nominal bits a weight; predicted KL %.4g: one by "
                "one %.4g, times %.2f for their meeting, measured at %lld positions",
                budget.bytes(plan) / kGigabyte, budget.average_bits(plan), forecast, plan.kl,
                additivity, static_cast<long long>(budget.positions()));
  context.note("auto: " + formats + "; " + text.data());
  context.record("trunk bytes", budget.bytes(plan));
  context.record("nominal bits", budget.average_bits(plan));
  context.record("predicted KL", forecast);
  context.record("single-swap KL", plan.kl);
  context.record("additivity", additivity);
}

}  // namespace

void choose_budgeted_formats(Model& model, PassContext& context) {
  const TrunkBudget& asked = context.options.ternary_trunk.budget;
  const Budget budget(model, asked, context.progress);
  const BudgetPlan plan = budget.choose();
  for (size_t i = 0; i < plan.chosen.size(); ++i) {
    const BudgetedMatrix& matrix = budget.matrices()[i];
    const Offer& offer = matrix.offers[plan.chosen[i]];
    TrunkTensor& tensor = model.trunk[matrix.tensor];
    set_format(tensor, offer.format);
    context.decide(tensor.name, std::string(format_name(offer.format)),
                   "what its sensitivity earns within the budget; the number is the KL in nats "
                   "that it adds alone",
                   offer.kl);
    if (offer.extent_xxh3) {
      context.results.measured_extents.emplace_back(matrix.tensor, *offer.extent_xxh3);
    }
  }
  note_plan(budget, plan, context);
  context.results.inputs.emplace_back("sensitivity", hex_digits(budget.sensitivity_xxh3()));
}

}  // namespace k3
