// The passes, in the one order in which they make sense, with the invariant that holds from each
// place on. Every pass works on the plan alone; bytes are encoded after the last row, when each has
// its place.
#include "passes/pipeline.h"

#include <array>

#include "passes/check_plan.h"
#include "schema/error.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

constexpr std::array<Pass, 7> kPasses = {{
    // The importer has accounted for every tensor of the checkpoint: it is in the model, in a bank,
    // or counted as dropped.

    {"census", "count tensors, parameters and bytes of the checkpoint", count_checkpoint},

    // From here on the counts of the source are in the provenance, whatever is left out later.

    {"rotate_stream", "on request, fold norm gains and rotate the residual stream", rotate_stream},

    // From here on a tensor's values are those of its folding (weight_rows.h), not the
    // checkpoint's.

    {"ternary_trunk", "choose the format of every trunk tensor and of the head", choose_formats},

    // From here on no code changes: what is tuned was tuned for these.

    {"tuning", "take block scales and norm gains that were tuned for this pack", apply_tuning},

    // From here on no format changes: every extent's size is known up to which experts are kept.

    {"prune_experts", "choose the experts that each bank keeps", choose_experts},

    // From here on no expert leaves a bank: what the pack holds is known.

    {"reorder_layout", "choose each tensor's layout and the order of experts in a bank",
     choose_layouts},

    // From here on the order of everything in the pack is known, and no decision is added.

    {"assign_offsets", "give every extent its place in the pack", assign_offsets},

    // From here on the plan is complete: encode may write any extent at any time.
}};

}  // namespace

std::span<const Pass> passes() {
  return kPasses;
}

PassResults run_pipeline(Model& model, const Options& options, Progress& progress,
                         std::string_view stop_after, const SolutionStore* solutions) {
  PassResults results;
  for (const Pass& pass : kPasses) {
    const Stopwatch watch;
    Problems problems;
    PassContext context{options, results, problems, progress, pass.name, solutions};
    results.passes.push_back({std::string(pass.name), {}});
    pass.run(model, context);
    check_plan(model, results, problems);
    if (!problems.empty()) {
      const auto& lines = problems.lines();
      if (lines.size() == 1) throw Error(pass.name, ": ", lines.front());
      for (const std::string& line : lines) progress.line("  " + line);
      throw Error(pass.name, ": ", lines.size(), " problems, the first: ", lines.front());
    }
    progress.line(std::string(pass.name) + ": " + format_seconds(watch.seconds()));
    if (pass.name == stop_after) break;
  }
  return results;
}

}  // namespace k3
