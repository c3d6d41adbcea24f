// prune_experts: which experts each bank keeps.
//
// Without a measured routing trace there is no ground to leave one out, so all stay, and the pack
// says so bank by bank. With traces, each layer's experts get scores and an order; the first N of
// each layer stay, or as many of each as a common budget of bytes allows. Those of the lowest
// marginal loss go first: an expert's share of its layer's energy, sum (weight x norm)^2, which is
// what the layer's output loses when nothing takes the expert's place. Counts and orders become a
// prune plan, or come from one: from there on the two ways are the same.
//
// What is dropped is left out of the pack, or kept behind all others as cold: there for whoever
// fetches it, but no token is routed to it unasked. Router rows and selection biases stay complete
// and by source id in any case. They are 0.08 % of K3, they name the model, and with them a reader
// can tell what was missed.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/expert_scores.h"
#include "passes/model_router_hash.h"
#include "passes/pass.h"
#include "passes/planned_extent.h"
#include "passes/prune_budget.h"
#include "schema/hash.h"

namespace k3 {
namespace {

constexpr int64_t kFloorInChoices =
    3;  // a budget leaves every layer three times what a token needs

void keep_all(const Model& model, PassContext& context) {
  for (const Bank& bank : model.banks) {
    const auto experts = static_cast<int64_t>(bank.experts.size());
    context.decide(bank_subject(bank),
                   "keep " + std::to_string(experts) + " of " + std::to_string(bank.source_experts),
                   "no routing trace; the number is the share of experts kept",
                   static_cast<double>(experts) / static_cast<double>(bank.source_experts));
  }
}

// Adds a problem for each reason why the traces cannot decide about this model.
bool check_traces(const Model& model, const RoutingSums& sums, const PruneExpertsOptions& options,
                  uint64_t router_xxh3, Problems& problems) {
  const TraceHeader& header = sums.header;
  if (header.router_xxh3 != router_xxh3) {
    problems.add("the traces are of ",
                 header.router_xxh3 == 0
                     ? std::string("no known model (import them with --pack)")
                     : "the model with router hash " + hex_digits(header.router_xxh3),
                 ", this checkpoint has router hash ", hex_digits(router_xxh3));
    return false;
  }
  // The hash is of these numbers too, but nothing ties it to those that the header states.
  const ModelConfig& config = model.config;
  if (header.experts != config.experts || header.experts_per_token != config.experts_per_token ||
      header.layers.size() > model.banks.size()) {
    problems.add("the traces are of ", header.layers.size(), " layers in which a token chooses ",
                 header.experts_per_token, " of ", header.experts, " experts, this checkpoint has ",
                 model.banks.size(), " and ", config.experts_per_token, " of ", config.experts);
    return false;
  }
  if (header.masked) {
    problems.add(
        "the traces were recorded while some experts could not be chosen, expected a run with all");
  }
  const bool needs_norms = options.score == ExpertScore::kReap ||
                           options.score == ExpertScore::kTotal || options.budget_bytes.has_value();
  if (needs_norms && !header.has_norms) {
    problems.add("the traces have no norms of outputs, which ",
                 options.budget_bytes
                     ? std::string("a budget")
                     : "the score " + std::string(expert_score_name(options.score)),
                 " needs");
  } else if (options.score == ExpertScore::kGate && !header.has_weights) {
    problems.add("the traces have no weights, which the score gate needs");
  }
  for (const Bank& bank : model.banks) {
    const auto found = std::find(header.layers.begin(), header.layers.end(), bank.layer);
    const bool seen = found != header.layers.end() &&
                      sums.layers[static_cast<size_t>(found - header.layers.begin())].tokens > 0;
    if (!seen) problems.add(bank_subject(bank), ": the traces never saw this layer");
  }
  return problems.empty();
}

// What dropping each expert costs, in the order of dropping: its share of the layer's energy.
std::vector<double> losses_in_order(const LayerRouting& routing, const PlanLayer& layer) {
  double energy = 0;
  for (const double squared : routing.squared) energy += squared;
  std::vector<double> losses;
  for (auto id = layer.kept.rbegin(); id != layer.kept.rend(); ++id) {
    losses.push_back(energy > 0 ? routing.squared[static_cast<size_t>(*id)] / energy : 0);
  }
  return losses;
}

// How many experts of each layer stay; empty after adding a problem.
std::vector<int64_t> choose_counts(const Model& model, const RoutingSums& sums,
                                   const PrunePlan& plan, const PruneExpertsOptions& options,
                                   Problems& problems) {
  const ModelConfig& config = model.config;
  if (!options.budget_bytes) {
    const int64_t keep = options.keep.value_or(config.experts);
    if (keep < config.experts_per_token || keep > config.experts) {
      problems.add("--prune-topk is ", keep, ", expected ", config.experts_per_token,
                   ", which a token chooses, to ", config.experts, ", which a layer has");
      return {};
    }
    return std::vector<int64_t>(model.banks.size(), keep);
  }
  const int64_t expert_bytes = bank_bands(config, model.banks.front()).extent_bytes();
  const int64_t floor = std::min(config.experts, kFloorInChoices * config.experts_per_token);
  const int64_t least = floor * static_cast<int64_t>(model.banks.size());
  const int64_t keep = *options.budget_bytes / expert_bytes;
  if (keep < least) {
    problems.add("--prune-budget-gb allows ", *options.budget_bytes, " bytes, ", floor,
                 " experts of each layer have ", least * expert_bytes);
    return {};
  }
  std::vector<std::vector<double>> losses;
  for (size_t layer = 0; layer < plan.layers.size(); ++layer) {
    losses.push_back(losses_in_order(sums.layers[layer], plan.layers[layer]));
  }
  return spread_budget(losses, floor, keep);
}

// A plan from traces, or nothing when there are problems.
std::optional<PrunePlan> make_plan(const Model& model, PassContext& context) {
  const PruneExpertsOptions& options = context.options.prune_experts;
  const RoutingSums sums = sum_routing(options.traces);
  const uint64_t router_xxh3 = model_router_hash(model);
  if (!check_traces(model, sums, options, router_xxh3, context.problems)) return std::nullopt;
  for (const std::string& path : sums.cut) {
    context.note(path + " was cut; its whole blocks were used");
  }

  PrunePlan plan;
  plan.router_xxh3 = router_xxh3;
  plan.experts = model.config.experts;
  plan.experts_per_token = model.config.experts_per_token;
  plan.score = expert_score_name(options.score);
  plan.traces = sums.traces;
  for (size_t i = 0; i < model.banks.size(); ++i) {
    PlanLayer& layer = plan.layers.emplace_back();
    layer.layer = model.banks[i].layer;
    layer.scores = expert_scores(sums.layers[i], options.score, layer.layer);
    layer.kept = rank_experts(layer.scores);
  }
  const std::vector<int64_t> counts = choose_counts(model, sums, plan, options, context.problems);
  if (counts.empty()) return std::nullopt;
  double missing = 0;
  double mass = 0;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    PlanLayer& layer = plan.layers[i];
    layer.dropped.assign(layer.kept.begin() + counts[i], layer.kept.end());
    layer.kept.resize(static_cast<size_t>(counts[i]));
    for (const double weight : sums.layers[i].weights) mass += weight;
    for (const int32_t id : layer.dropped)
      missing += sums.layers[i].weights[static_cast<size_t>(id)];
  }
  if (mass > 0 && missing > 0) {
    context.note(
        "in the traces themselves " + std::to_string(std::lround(100 * missing / mass)) +
        " % of the routed weight went to experts that are dropped; on other text it is more "
        "(k3exec eval --against)");
  }
  return plan;
}

std::optional<PrunePlan> replay_plan(const Model& model, const std::string& path) {
  PrunePlan plan = read_prune_plan(path);
  std::vector<int64_t> layers;
  for (const Bank& bank : model.banks) layers.push_back(bank.layer);
  check_plan_fits(plan, path, model.config, model_router_hash(model), layers);
  return plan;
}

void apply(const PlanLayer& layer, bool keeps_cold, Bank& bank) {
  std::vector<Expert> all = std::move(bank.experts);
  bank.experts.clear();
  for (Expert& expert : all) {
    const bool kept =
        std::find(layer.kept.begin(), layer.kept.end(), expert.source_id) != layer.kept.end();
    expert.cold = !kept;
    (kept || keeps_cold ? bank.experts : bank.left_out).push_back(expert);
  }
}

}  // namespace

void choose_experts(Model& model, PassContext& context) {
  const PruneExpertsOptions& options = context.options.prune_experts;
  std::optional<PrunePlan>& plan = context.results.plan;
  if (!options.plan_path.empty()) {
    plan = replay_plan(model, options.plan_path);
  } else if (!options.traces.empty()) {
    plan = make_plan(model, context);
    if (!plan) return;
  } else {
    keep_all(model, context);
  }
  int64_t kept = 0;
  int64_t cold = 0;
  int64_t left_out = 0;
  for (Bank& bank : model.banks) {
    if (plan) {
      const PlanLayer& layer = *plan->find(bank.layer);
      apply(layer, options.keep_cold, bank);
      const double share =
          static_cast<double>(layer.kept.size()) / static_cast<double>(bank.source_experts);
      context.decide(bank_subject(bank),
                     "keep " + std::to_string(layer.kept.size()) + " of " +
                         std::to_string(bank.source_experts) + " by " + plan->score,
                     "the prune plan; the number is the share of experts kept", share);
    }
    const int64_t cold_here = std::count_if(bank.experts.begin(), bank.experts.end(),
                                            [](const Expert& expert) { return expert.cold; });
    kept += std::ssize(bank.experts) - cold_here;
    cold += cold_here;
    left_out += std::ssize(bank.left_out);
  }
  context.record("experts kept", static_cast<double>(kept));
  if (plan) context.record("experts cold", static_cast<double>(cold));
  context.record("experts left out", static_cast<double>(left_out));
}

}  // namespace k3
