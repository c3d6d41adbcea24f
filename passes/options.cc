#include "passes/options.h"

namespace k3 {

std::string precision_name(Precision precision) {
  switch (precision) {
    case Precision::kSource:
      break;
    case Precision::kInt8:
      return "int8";
    case Precision::kTernary:
      return "ternary";
    case Precision::kTernary2:
      return "ternary2";
  }
  return "bf16";
}

std::string expert_layout_name(ExpertLayout layout) {
  return layout == ExpertLayout::kCompact ? "compact" : "exact";
}

std::vector<std::pair<std::string, std::string>> canonical_options(const Options& options) {
  std::vector<std::pair<std::string, std::string>> named = {
      {"trunk", precision_name(options.ternary_trunk.trunk)},
      {"head", precision_name(options.ternary_trunk.head)},
      {"experts", expert_layout_name(options.reorder_layout.experts)}};
  if (!options.ternary_trunk.calibration.empty()) {
    const SolverOptions& solver = options.ternary_trunk.solver;
    named.emplace_back("training steps", std::to_string(solver.training_steps));
  }
  return named;
}

}  // namespace k3
