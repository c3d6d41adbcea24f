// ternary_trunk: the format of every tensor that is not a routed expert.
//
// Two families of choices stand open: the trunk's matrices and the head. All else stays as it is in
// the checkpoint, because it is small (norms, routers, gates: 1.5 % of K3's trunk) and every error
// in it is felt by each token, or because its product has no integer form (kv_b_proj, used
// transposed).
//
// A ternary format costs quality, and the pack says how much of it matrix by matrix. Given
// calibration this pass solves those matrices for what they read (solve_trunk.cc) and reports the
// output's error; without, it rounds them once to measure what encode will store, and reports the
// error of the weights.
#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "passes/pass.h"
#include "passes/planned_extent.h"
#include "passes/sensitivity_budget.h"
#include "passes/solve_trunk.h"
#include "passes/ternary_round.h"
#include "passes/weight_rows.h"
#include "schema/calibration.h"
#include "schema/formats/ternary.h"
#include "schema/hash.h"

namespace k3 {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

Format format_of(Precision precision, const TrunkTensor& tensor) {
  switch (precision) {
    case Precision::kSource:
    case Precision::kAuto:  // sensitivity_budget.cc has the choice
      break;
    case Precision::kInt8:
      return Format::kInt8;
    case Precision::kTernary:
      return Format::kTernary;
    case Precision::kTernary2:
      return Format::kTernary2;
  }
  return source_format(tensor);
}

Precision asked_precision(const TrunkTensor& tensor, const TernaryTrunkOptions& options) {
  if (tensor.family == Family::kHead) return options.head;
  return in_trunk(tensor.family) ? options.trunk : Precision::kSource;
}

// What rounding takes from a matrix, as sums over its weights.
struct RoundingLoss {
  double squared_error = 0;
  double squared_weights = 0;

  double relative() const {
    return squared_weights > 0 ? std::sqrt(squared_error / squared_weights) : 0.0;
  }
};

RoundingLoss measure_rounding(const Model& model, const TrunkTensor& tensor, Progress& progress) {
  const Blocks160 place{tensor.format, tensor.shape[0], tensor.shape[1]};
  const auto blocks = static_cast<size_t>(place.blocks_per_row());
  const auto cols = static_cast<size_t>(place.cols);
  const int64_t row_bytes = place.cols * dtype_bytes(tensor.dtype);
  const int64_t rows_at_once = std::max<int64_t>(1, kChunkBytes / row_bytes);
  WeightRows source(model, tensor);
  std::vector<float> weights;
  std::vector<int8_t> codes(blocks * static_cast<size_t>(kBlockInputs));
  std::vector<uint8_t> multipliers(blocks);
  RoundingLoss loss;
  for (int64_t first = 0; first < place.rows; first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, place.rows - first);
    weights.resize(static_cast<size_t>(rows) * cols);
    source.read(first, std::span(weights));
    for (size_t begin = 0; begin < weights.size(); begin += cols) {
      const RoundedRow row =
          round_ternary_row(std::span(weights).subspan(begin, cols),
                            largest_ternary_code(tensor.format), codes, multipliers);
      loss.squared_error += row.squared_error;
      loss.squared_weights += row.squared_weights;
    }
    progress.advance(rows * row_bytes);
  }
  return loss;
}

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

// By place in model.trunk; nothing where the format is not ternary. A matrix is one task.
std::vector<RoundingLoss> measure_ternary(const Model& model, Progress& progress) {
  std::vector<size_t> chosen;
  int64_t bytes = 0;
  for (size_t i = 0; i < model.trunk.size(); ++i) {
    if (!is_ternary(model.trunk[i])) continue;
    chosen.push_back(i);
    bytes += model.trunk[i].source.length_bytes;
  }
  std::vector<RoundingLoss> losses(model.trunk.size());
  if (chosen.empty()) return losses;
  progress.start("round", bytes);
  tbb::parallel_for(size_t{0}, chosen.size(), [&](size_t i) {
    losses[chosen[i]] = measure_rounding(model, model.trunk[chosen[i]], progress);
  });
  progress.finish();
  return losses;
}

void decide_format(const TrunkTensor& tensor, bool asked, const RoundingLoss& rounded,
                   const std::optional<MatrixLoss>& solved, PassContext& context) {
  const std::string choice(format_name(tensor.format));
  const double bits = 8.0 * static_cast<double>(planned_bytes(tensor)) /
                      static_cast<double>(tensor.shape.elements().value_or(0));
  if (solved) {
    context.decide(tensor.name, choice,
                   is_ternary(tensor) ? "asked for; solved for calibration; the number is the "
                                        "output's relative error on the select documents"
                                      : "asked for; the number is the output's relative error on "
                                        "the calibration's select documents",
                   solved->held_out());
  } else if (is_ternary(tensor) && !context.options.ternary_trunk.calibration.empty()) {
    context.decide(tensor.name, choice,
                   "asked for; to be solved for calibration; the number is stored bits per weight",
                   bits);
  } else if (is_ternary(tensor)) {
    context.decide(tensor.name, choice,
                   "asked for; rounded, not trained; the number is the relative weight error",
                   rounded.relative());
  } else if (tensor.format == Format::kInt8) {
    context.decide(tensor.name, choice, "asked for; the number is stored bits per weight", bits);
  } else if (tensor.folding.changes_values()) {
    context.decide(
        tensor.name, choice,
        "rotated or folded, which bf16 would round; the number is stored bits per weight", bits);
  } else {
    context.decide(tensor.name, choice,
                   asked ? "must stay exact; the number is stored bits per weight"
                         : "source precision; the number is stored bits per weight",
                   bits);
  }
}

// Formats that were chosen, with their counts.
void record_counts(const Model& model, PassContext& context) {
  for (const FormatRow& row : formats()) {
    if (!lies_in_blocks160(row.format)) continue;
    int64_t tensors = 0;
    int64_t parameters = 0;
    int64_t bytes = 0;
    for (const TrunkTensor& tensor : model.trunk) {
      if (tensor.format != row.format) continue;
      ++tensors;
      parameters += tensor.shape.elements().value_or(0);
      bytes += planned_bytes(tensor);
    }
    if (tensors == 0) continue;
    const std::string name(row.name);
    context.record(name + " tensors", static_cast<double>(tensors));
    context.record(name + " parameters", static_cast<double>(parameters));
    context.record(name + " bytes", static_cast<double>(bytes));
  }
}

// Rounding by the weights alone is no way to keep a model: whoever asked for it is told the price.
void note_rounding(const Model& model, const std::vector<RoundingLoss>& losses,
                   PassContext& context) {
  RoundingLoss total;
  int64_t matrices = 0;
  size_t worst = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!is_ternary(model.trunk[i])) continue;
    ++matrices;
    total.squared_error += losses[i].squared_error;
    total.squared_weights += losses[i].squared_weights;
    if (losses[i].relative() >= losses[worst].relative()) worst = i;
  }
  if (matrices == 0) return;
  context.record("relative weight error", total.relative());
  context.note(std::to_string(matrices) + " matrices are " +
               std::string(format_name(model.trunk[worst].format)) +
               " by rounding alone, untrained: their weights are off by " +
               percent(total.relative()) + ", at worst " + percent(losses[worst].relative()) +
               " (" + model.trunk[worst].name +
               "). k3exec eval --against tells what that does to the output");
}

void record_calibration(const CalibrationReader& calibration, PassContext& context) {
  const CalibrationIndex& index = calibration.index();
  auto& inputs = context.results.inputs;
  inputs.emplace_back("calibration", hex_digits(calibration.index_xxh3()));
  inputs.emplace_back("calibration text", hex_digits(index.text_xxh3()));
  inputs.emplace_back("calibration split", hex_digits(index.split_xxh3()));
  inputs.emplace_back("calibration model", hex_digits(index.model_payload_xxh3));
  if (index.propagated_payload_xxh3) {
    inputs.emplace_back("calibration propagated", hex_digits(*index.propagated_payload_xxh3));
  }
  context.record("fit tokens", static_cast<double>(index.of(CalibrationHalf::kFit).tokens));
  context.record("select tokens", static_cast<double>(index.of(CalibrationHalf::kSelect).tokens));
}

// The middle of the ternary matrices, and those that are better than they can be.
void note_solutions(PassContext& context) {
  double squares = 0;
  int64_t matrices = 0;
  const NamedLoss* worst = nullptr;
  for (const NamedLoss& row : context.results.losses) {
    const double error = row.loss.held_out();
    if (error < row.loss.bound) {
      context.note("warning: " + row.name + ": error " + percent(error) +
                   " on select documents is below the bound of " + percent(row.loss.bound) +
                   " for Gaussian weights: too few tokens, or weights that are not Gaussian");
    }
    if (row.format == Format::kInt8) continue;
    ++matrices;
    squares += error * error;
    if (worst == nullptr || error > worst->loss.held_out()) worst = &row;
  }
  if (matrices == 0) return;
  const double typical = std::sqrt(squares / static_cast<double>(matrices));
  context.record("relative output error", typical);
  context.note(std::to_string(matrices) + " matrices are solved for calibration: their outputs " +
               "are off by " + percent(typical) + " on select documents, at worst " +
               percent(worst->loss.held_out()) + " (" + worst->name +
               "). k3exec eval --against tells what that does to the whole");
}

}  // namespace

void choose_formats(Model& model, PassContext& context) {
  const auto asked = [&](const TrunkTensor& tensor) {
    return asked_precision(tensor, context.options.ternary_trunk);
  };
  for (TrunkTensor& tensor : model.trunk) {
    tensor.format =
        may_be_quantized(tensor) ? format_of(asked(tensor), tensor) : source_format(tensor);
    tensor.layout = lies_in_blocks160(tensor.format) ? Layout::kBlocks160 : Layout::kRowMajor;
  }
  if (context.options.ternary_trunk.trunk == Precision::kAuto) {
    choose_budgeted_formats(model, context);
  }
  std::vector<RoundingLoss> rounded(model.trunk.size());
  std::vector<std::optional<MatrixLoss>> solved(model.trunk.size());
  if (context.options.ternary_trunk.calibration.empty()) {
    rounded = measure_ternary(model, context.progress);
  } else {
    const CalibrationReader calibration(context.options.ternary_trunk.calibration);
    record_calibration(calibration, context);
    if (context.solutions != nullptr) solved = solve_trunk(model, calibration, context);
  }
  for (size_t i = 0; i < model.trunk.size(); ++i) {
    const TrunkTensor& tensor = model.trunk[i];
    decide_format(tensor, asked(tensor) != Precision::kSource, rounded[i], solved[i], context);
    if (solved[i]) context.results.losses.push_back({tensor.name, tensor.format, *solved[i]});
  }
  record_counts(model, context);
  context.options.ternary_trunk.calibration.empty() ? note_rounding(model, rounded, context)
                                                    : note_solutions(context);
}

}  // namespace k3
