#include "runtime/sensitivity.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <tuple>

#include "runtime/measure_sensitivity.h"
#include "schema/output_file.h"
#include "schema/sensitivity.h"
#include "schema/stopwatch.h"
#include "schema/text_file.h"

namespace k3 {
namespace {

constexpr size_t kWorstShown = 10;

void print_swap(const Sensitivity& measured, const std::string& what, const JointSwap& swap,
                std::ostream& out) {
  char line[256];
  std::snprintf(line, sizeof line, "%-16s %-12s %8lld %12.4e %12.4e %7.2f\n", what.c_str(),
                measured.candidates[static_cast<size_t>(swap.candidate)].name.c_str(),
                static_cast<long long>(swap.matrices), swap.single_kl, swap.kl,
                swap.single_kl > 0 ? swap.kl / swap.single_kl : 1.0);
  out << line;
}

void print_table(const Sensitivity& measured, std::ostream& out) {
  char line[256];
  std::snprintf(line, sizeof line, "%-16s %-12s %8s %12s %12s %7s\n", "KL in nats", "candidate",
                "matrices", "one by one", "together", "ratio");
  out << line;
  for (const FamilySwap& family : measured.families) {
    print_swap(measured, std::string(family_name(family.family)), family.swap, out);
  }
  for (const JointSwap& swap : measured.whole) print_swap(measured, "whole trunk", swap, out);

  std::vector<std::tuple<double, const MatrixSensitivity*, const MatrixSwap*>> worst;
  for (const MatrixSensitivity& matrix : measured.matrices) {
    for (const MatrixSwap& swap : matrix.swaps) worst.emplace_back(swap.kl, &matrix, &swap);
  }
  std::stable_sort(worst.begin(), worst.end(),
                   [](const auto& a, const auto& b) { return std::get<0>(a) > std::get<0>(b); });
  out << "\nthe most sensitive, of " << worst.size() << " swaps at " << measured.positions
      << " positions\n";
  for (size_t i = 0; i < std::min(kWorstShown, worst.size()); ++i) {
    const auto& [kl, matrix, swap] = worst[i];
    std::snprintf(line, sizeof line, "%12.4e  %-10s %s\n", kl,
                  std::string(format_name(swap->format)).c_str(), matrix->name.c_str());
    out << line;
  }
}

}  // namespace

void sensitivity(const SensitivityOptions& options, std::ostream& out, std::ostream& progress) {
  check_writable(options.output_path);
  LoadedModel base(options.load);
  const TokenWindows windows =
      read_windows(options.text_paths, CalibrationHalf::kSelect, base.tokenizer(), options.windows);
  std::vector<CandidatePack> candidates;
  for (const std::string& path : options.candidate_paths) {
    candidates.push_back(
        {std::filesystem::path(path).stem().string(), std::make_unique<PackReader>(path)});
  }

  const Stopwatch watch;
  int shown = -1;
  const Sensitivity measured = measure_sensitivity(base, candidates, windows, [&](double share) {
    const auto percent = static_cast<int>(100 * share);
    if (options.quiet || percent == shown) return;
    shown = percent;
    char line[96];
    std::snprintf(line, sizeof line, "\rsensitivity: %3d %%, %.0f s left ", percent,
                  watch.seconds() * (1 - share) / share);
    progress << line << std::flush;
  });
  if (!options.quiet) progress << '\n';

  const std::string text = sensitivity_text(measured);
  write_text_file(options.output_path, text);
  if (options.json) {
    out << text;
  } else {
    print_table(measured, out);
  }
}

}  // namespace k3
