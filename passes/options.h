// Every knob of the passes, one sub-struct per pass, each default with its reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/expert_scores.h"
#include "passes/solver_options.h"
#include "schema/format.h"

namespace k3 {

// What becomes of a matrix that may be quantized.
enum class Precision : uint8_t {
  kSource,  // f32 or bf16 as in the checkpoint; the flag calls it bf16, which it is in every
            // release
  kInt8,
  // Solved for calibration where there is one, else by rounding: the formats for a trunk that must
  // be small.
  kTernary,
  kTernary2,
  kAuto,  // each matrix as its measured sensitivity and the budget have it; not for the head
};

// What `auto` may spend, and what it must reach. At least one of the three is given, not both
// budgets.
struct TrunkBudget {
  std::string sensitivity;             // the .k3sens file
  std::optional<double> gigabytes;     // of the whole trunk as stored, 10^9 bytes
  std::optional<double> average_bits;  // nominal, over the matrices that may be quantized
  std::optional<double> max_kl;        // predicted, in nats
};

struct TernaryTrunkOptions {
  // The source's precision, because a compiler that was told nothing must lose nothing.
  Precision trunk = Precision::kSource;
  // Apart from the trunk: the head sees every logit, and K3's is 2 % of the trunk's bytes. So the
  // command line offers it no ternary format.
  Precision head = Precision::kSource;
  // The .k3cal file that ternary matrices are solved for; empty: they are rounded.
  std::string calibration;
  // Its `planes` follow from each matrix' format.
  SolverOptions solver;
  TrunkBudget budget;  // of Precision::kAuto
};

struct TuningOptions {
  std::string path;  // the .k3tune file; empty: scales and gains stay as they are
};

struct PruneExpertsOptions {
  // Routing traces to judge experts by. Without any, and without a plan, all experts stay: there is
  // no ground to leave one out.
  std::vector<std::string> traces = {};
  // What proved best in published comparisons; others are there to be compared with.
  ExpertScore score = ExpertScore::kReap;
  std::optional<int64_t> keep = {};          // experts per layer; empty: all
  std::optional<int64_t> budget_bytes = {};  // of all kept experts together, instead of `keep`
  std::string plan_path = {};                // replay this plan instead of judging; empty: none
  // Left out, because a pack is pruned to be small.
  bool keep_cold = false;
};

// In what layout mxfp4 experts lie in the pack. No weight and no output depends on it.
enum class ExpertLayout : uint8_t {
  kExact,    // the checkpoint's scale bytes as they are
  kCompact,  // half a byte a scale in each bank where all experts allow it: 2.9 % fewer bytes
};

struct RotateStreamOptions {
  // Off: it costs online work and, where precision is kept, bytes. Layers with outlier channels win
  // a quarter of their error by it, nano's hardly anything.
  bool rotate = false;
  uint64_t seed = 0;  // of the signs; any is as good as another
};

struct ReorderLayoutOptions {
  // As they are, because then a reader may use an expert where it was read, with no byte moved, and
  // bands are whole pages at K3's sizes.
  ExpertLayout experts = ExpertLayout::kExact;
};

struct Options {
  RotateStreamOptions rotate_stream;
  TernaryTrunkOptions ternary_trunk;
  TuningOptions tuning;
  PruneExpertsOptions prune_experts;
  ReorderLayoutOptions reorder_layout;
};

// The options that decide bytes, as the pack records them: names and values in a fixed order. Which
// experts are kept is not among them: the prune plan says it (pack_plan.cc).
std::vector<std::pair<std::string, std::string>> canonical_options(const Options& options);

// The names on the command line and in a pack.
std::string precision_name(Precision precision);
std::string expert_layout_name(ExpertLayout layout);

}  // namespace k3
