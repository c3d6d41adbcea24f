// The prune plan: which experts of each layer are kept, and why. k3c makes one from routing traces
// (compile --plan-out); k3c compile and k3exec replay it (--prune-plan).
//
// A small JSON file, so that a plan can be read, compared and edited by hand. It names the model
// and the traces by their hashes; a plan for another model is refused, whoever made it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/model_config.h"

namespace k3 {

struct PlanTrace {
  uint64_t xxh3 = 0;  // of the trace, as TraceReader::digest() gives it
  int64_t tokens = 0;

  friend bool operator==(const PlanTrace&, const PlanTrace&) = default;
};

struct PlanLayer {
  int64_t layer = 0;
  std::vector<int32_t> kept = {};  // source ids, the highest score first; equal ones by source id
  std::vector<int32_t> dropped = {};  // likewise
  std::vector<double> scores = {};    // by source id

  friend bool operator==(const PlanLayer&, const PlanLayer&) = default;
};

struct PrunePlan {
  uint64_t router_xxh3 = 0;  // of the model, see router_hash.h
  int64_t experts = 0;       // of a layer in the checkpoint
  int64_t experts_per_token = 0;
  std::string score;  // the rule: "reap", "frequency", ...
  std::vector<PlanTrace> traces = {};
  std::vector<PlanLayer> layers = {};  // every layer with experts, ascending

  const PlanLayer* find(int64_t layer) const;  // null when the plan has none

  friend bool operator==(const PrunePlan&, const PrunePlan&) = default;
};

// The file's text; numbers in the shortest form that reads back to the same double.
std::string format_prune_plan(const PrunePlan& plan);

// Throws Error, starting with `path`, for text that is not a plan: unknown, missing or repeated
// members, a layer whose kept and dropped experts are not all experts once, fewer kept than a token
// chooses.
PrunePlan parse_prune_plan(std::string_view text, const std::string& path);
PrunePlan read_prune_plan(const std::string& path);

// Throws Error unless the plan is for the model of that config and router_xxh3 and names exactly
// `layers`.
void check_plan_fits(const PrunePlan& plan, const std::string& path, const ModelConfig& config,
                     uint64_t router_xxh3, std::span<const int64_t> layers);

}  // namespace k3
