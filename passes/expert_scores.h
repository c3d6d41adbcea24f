// How much each expert matters, from routing traces: sums over the tokens that chose it, and the
// rules that make an order out of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/prune_plan.h"
#include "schema/routing_trace.h"

namespace k3 {

// The values are names on the command line and in plans (expert_score_name).
enum class ExpertScore : uint8_t {
  kReap,  // mean over the tokens that chose it of weight x norm of its output (REAP, 2510.13999)
  kFrequency,  // how many tokens chose it
  kGate,       // sum of its weights
  kRandom,     // a draw: what any rule must beat
  kTotal,      // sum of weight x norm: REAP's mean, times how many chose it
};

std::string_view expert_score_name(ExpertScore score);
std::optional<ExpertScore> parse_expert_score(std::string_view name);

// What the traces say of one layer; vectors are by source id.
struct LayerRouting {
  int64_t tokens = 0;
  std::vector<int64_t> chosen;
  std::vector<double> weights;        // sum of its weights
  std::vector<double> contributions;  // sum of weight x norm
  std::vector<double> squared;        // sum of (weight x norm)^2
};

struct RoutingSums {
  TraceHeader header;  // of the first trace
  std::vector<PlanTrace> traces;
  std::vector<LayerRouting> layers;  // by index into header.layers
  std::vector<std::string> cut;      // paths of traces that end early
};

// Adds up the traces; sums are in double, in the order of the files and of their blocks. Throws
// Error for files that are damaged or not traces, and for traces of different models.
RoutingSums sum_routing(std::span<const std::string> paths);

// Scores by source id, finite and not negative; 0 for an expert that no token chose, but for
// kRandom. `layer` seeds the draw.
std::vector<double> expert_scores(const LayerRouting& routing, ExpertScore score, int64_t layer);

// Source ids by falling score, equal ones ascending.
std::vector<int32_t> rank_experts(std::span<const double> scores);

}  // namespace k3
