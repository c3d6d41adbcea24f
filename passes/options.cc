#include "passes/options.h"

#include <array>
#include <charconv>

namespace k3 {
namespace {

std::string shortest(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

}  // namespace

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
    case Precision::kAuto:
      return "auto";
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
  if (options.rotate_stream.rotate) {
    named.emplace_back("rotate", "seed " + std::to_string(options.rotate_stream.seed));
  }
  if (!options.ternary_trunk.calibration.empty()) {
    const SolverOptions& solver = options.ternary_trunk.solver;
    named.emplace_back("training steps", std::to_string(solver.training_steps));
  }
  if (options.ternary_trunk.trunk == Precision::kAuto) {
    const TrunkBudget& budget = options.ternary_trunk.budget;
    const auto add = [&](const char* name, const std::optional<double>& value) {
      if (value) named.emplace_back(name, shortest(*value));
    };
    add("trunk budget gb", budget.gigabytes);
    add("trunk bits", budget.average_bits);
    add("max kl", budget.max_kl);
  }
  return named;
}

}  // namespace k3
