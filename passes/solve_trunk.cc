// Matrices that read the same vector share one Gram matrix, and it is the Gram matrix that is
// large: so the work goes input by input, with one H in memory, and inside an input matrix by
// matrix, each on all cores. H is used as the file has it, a sum over tokens; no result changes
// with a factor.
//
// The halves of the calibration are never mixed: codes are solved for the fit documents alone, and
// the error on the select documents is what decisions report. The bound takes both, because a
// spectrum from more tokens is closer to the true one.

#include "passes/solve_trunk.h"

#include <tbb/enumerable_thread_specific.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "passes/output_error.h"
#include "passes/planned_extent.h"
#include "passes/ternary_extent.h"
#include "passes/ternary_solver.h"
#include "passes/water_filling.h"
#include "passes/weight_rows.h"
#include "schema/formats/int8.h"
#include "schema/hash.h"

namespace k3 {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kChunkBytes = int64_t{4} << 20;
// Bump it when the solver's results change: old solutions in work folders are then not found.
constexpr uint64_t kSolverRevision = 1;

// What names a solution: everything that decides its bytes or its numbers.
class KeyHash {
 public:
  template <class Value>
  KeyHash& add(const Value& value) {
    hash_.update(std::as_bytes(std::span(&value, 1)));
    return *this;
  }
  KeyHash& add(const std::vector<Extent>& extents) {
    for (const Extent& extent : extents) add(extent.xxh3);
    return *this;
  }
  uint64_t digest() const { return hash_.digest(); }

 private:
  Xxh3Stream hash_;
};

uint64_t solution_key(const TrunkTensor& tensor, uint64_t source_xxh3,
                      const CalibrationInput& input, const SolverOptions& options) {
  KeyHash key;
  key.add(kSolverRevision).add(source_xxh3).add(tensor.shape[0]).add(tensor.shape[1]);
  key.add(input.steps.xxh3).add(input.source_steps.xxh3);
  for (const CalibrationSums& sums : input.sums) key.add(sums.gram).add(sums.cross);
  key.add(options.planes).add(options.ridge).add(options.damping).add(options.most_rounds);
  key.add(options.settled_share).add(options.annealing_sweeps).add(options.annealing_heat);
  key.add(options.most_sweeps).add(options.training_steps).add(options.latent_rate);
  key.add(options.scale_rate).add(options.propagated_strength).add(options.propagated_damping);
  return key.digest();
}

// One input's Gram matrices, read when first asked for.
class InputGrams {
 public:
  InputGrams(const CalibrationReader& calibration, const CalibrationInput& input)
      : calibration_(calibration), input_(input) {}

  const std::vector<float>& fit() { return gram(CalibrationHalf::kFit, fit_); }
  const std::vector<float>& select() { return gram(CalibrationHalf::kSelect, select_); }
  const std::vector<float>& cross() {
    if (cross_.empty() && calibration_.is_propagated()) {
      cross_.resize(entries());
      calibration_.cross(input_, CalibrationHalf::kFit, cross_);
    }
    return cross_;
  }
  const std::vector<double>& spectrum() {
    if (!spectrum_) {
      std::vector<float> both = fit();
      for (size_t i = 0; i < both.size(); ++i) both[i] += select()[i];
      spectrum_ = gram_spectrum(both, input_.width);
    }
    return *spectrum_;
  }
  bool has_select() const { return calibration_.tokens(CalibrationHalf::kSelect) > 0; }
  double samples() const {
    return static_cast<double>(calibration_.tokens(CalibrationHalf::kFit)) /
           static_cast<double>(input_.width);
  }

 private:
  size_t entries() const { return static_cast<size_t>(input_.width * input_.width); }
  const std::vector<float>& gram(CalibrationHalf half, std::vector<float>& to) {
    if (to.empty()) {
      to.resize(entries());
      calibration_.gram(input_, half, to);
    }
    return to;
  }

  const CalibrationReader& calibration_;
  const CalibrationInput& input_;
  std::vector<float> fit_, select_, cross_;
  std::optional<std::vector<double>> spectrum_;
};

void add_bound(const TrunkTensor& tensor, InputGrams& grams, MatrixLoss& loss) {
  const std::vector<double>& spectrum = grams.spectrum();
  const double error = loss.held_out();
  loss.stored_bits = 8.0 * static_cast<double>(planned_bytes(tensor)) /
                     static_cast<double>(tensor.shape[0] * tensor.shape[1]);
  loss.bound = least_error(spectrum, loss.stored_bits);
  loss.gap_bits = error > 0 ? loss.stored_bits - least_bits(spectrum, error) : kNotMeasured;
  loss.flatness = spectral_flatness(spectrum);
  loss.samples = grams.samples();
}

StoredSolution solve(const Model& model, const TrunkTensor& tensor, uint64_t source_xxh3,
                     InputGrams& grams, SolverOptions options, Progress& progress) {
  const int64_t row_bytes = tensor.shape[1] * dtype_bytes(tensor.dtype);
  // A reader keeps what it made last, so each thread has its own and asks it for ascending rows.
  tbb::enumerable_thread_specific<WeightRows> readers([&] { return WeightRows(model, tensor); });
  SolveInput input;
  input.rows = tensor.shape[0];
  input.cols = tensor.shape[1];
  input.gram = grams.fit();
  input.cross_gram = grams.cross();
  if (grams.has_select()) input.select_gram = grams.select();
  input.read_rows = [&](int64_t first_row, std::span<float> weights) {
    readers.local().read(first_row, weights);
  };
  input.on_rows = [&](int64_t rows) { progress.advance(rows * row_bytes); };
  options.ridge = choose_ridge(input, options);
  const TernarySolution solved = solve_ternary(input, options);

  StoredSolution solution;
  solution.source_xxh3 = source_xxh3;
  MatrixLoss& loss = solution.loss;
  loss.step_fit.fill(kNotMeasured);
  loss.step_select.fill(kNotMeasured);
  for (size_t i = 0; i < kSolverSteps.size(); ++i) {
    for (const StepError& step : solved.steps) {
      if (step.step != kSolverSteps[i]) continue;
      loss.step_fit[i] = step.fit;
      loss.step_select[i] = step.select.value_or(kNotMeasured);
    }
  }
  loss.fit = solved.stored().fit;
  loss.select = solved.stored().select.value_or(kNotMeasured);
  loss.ridge = options.ridge;
  loss.propagated = input.cross_gram.empty() ? 0 : 1;
  add_bound(tensor, grams, loss);
  solution.extent = ternary_extent({tensor.format, tensor.shape[0], tensor.shape[1]}, solved.codes);
  return solution;
}

// The error of a matrix that encode will round to int8.
MatrixLoss measure_int8(const Model& model, const TrunkTensor& tensor, InputGrams& grams) {
  WeightRows source(model, tensor);
  const int64_t cols = tensor.shape[1];
  const auto blocks = static_cast<size_t>(divide_up(cols, kBlockInputs));
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / (cols * 4));
  const int64_t chunks = divide_up(tensor.shape[0], chunk);
  struct Energies {
    double fit = 0, select = 0, fit_weights = 0, select_weights = 0;
  };
  std::vector<Energies> parts(static_cast<size_t>(chunks));
  const std::vector<float>& fit = grams.fit();
  const std::vector<float>* const select = grams.has_select() ? &grams.select() : nullptr;
  const auto sum = [](const std::vector<double>& values) {
    double total = 0;
    for (const double value : values) total += value;
    return total;
  };
  for (int64_t part = 0; part < chunks; ++part) {  // output_energies uses all threads
    const int64_t first = part * chunk;
    const int64_t rows = std::min(chunk, tensor.shape[0] - first);
    std::vector<float> weights(static_cast<size_t>(rows * cols));
    source.read(first, std::span(weights));
    std::vector<float> errors(weights.size());
    std::vector<int8_t> codes(blocks * static_cast<size_t>(kBlockInputs));
    std::vector<uint8_t> multipliers(blocks);
    for (int64_t row = 0; row < rows; ++row) {
      const auto line =
          std::span(weights).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
      const float scale = encode_int8_row(line, codes, multipliers);
      for (size_t col = 0; col < line.size(); ++col) {
        errors[static_cast<size_t>(row * cols) + col] = static_cast<float>(
            line[col] -
            decode_int8(codes[col], multipliers[col / static_cast<size_t>(kBlockInputs)], scale));
      }
    }
    Energies& to = parts[static_cast<size_t>(part)];
    to.fit = sum(output_energies(errors.data(), rows, cols, cols, fit));
    to.fit_weights = sum(output_energies(weights.data(), rows, cols, cols, fit));
    if (select == nullptr) continue;
    to.select = sum(output_energies(errors.data(), rows, cols, cols, *select));
    to.select_weights = sum(output_energies(weights.data(), rows, cols, cols, *select));
  }
  Energies total;
  for (const Energies& part : parts) {
    total.fit += part.fit;
    total.fit_weights += part.fit_weights;
    total.select += part.select;
    total.select_weights += part.select_weights;
  }
  MatrixLoss loss;
  loss.step_fit.fill(kNotMeasured);
  loss.step_select.fill(kNotMeasured);
  loss.fit = relative_error(total.fit, total.fit_weights);
  loss.select =
      total.select_weights > 0 ? relative_error(total.select, total.select_weights) : kNotMeasured;
  add_bound(tensor, grams, loss);
  return loss;
}

}  // namespace

std::vector<std::optional<MatrixLoss>> solve_trunk(Model& model,
                                                   const CalibrationReader& calibration,
                                                   PassContext& context) {
  // By the input's place in the file, so that the order of work is one.
  std::map<const CalibrationInput*, std::vector<size_t>> readers;
  int64_t bytes = 0;
  std::vector<uint64_t> source_hashes(model.trunk.size());
  for (size_t i = 0; i < model.trunk.size(); ++i) {
    const TrunkTensor& tensor = model.trunk[i];
    if (!lies_in_blocks160(tensor.format)) continue;
    const CalibrationInput* input = calibration.find(tensor.name);
    if (is_ternary(tensor) || input != nullptr) {
      source_hashes[i] = hash_source(model, tensor);
      input = &calibration.expect(tensor.name, tensor.shape[1], source_hashes[i]);
      readers[input].push_back(i);
      bytes += tensor.source.length_bytes;
    }
  }
  std::vector<std::optional<MatrixLoss>> losses(model.trunk.size());
  if (readers.empty()) return losses;
  context.progress.start("solve", bytes);
  int64_t found = 0;
  for (const auto& [input, tensors] : readers) {
    InputGrams grams(calibration, *input);
    for (const size_t i : tensors) {
      TrunkTensor& tensor = model.trunk[i];
      if (!is_ternary(tensor)) {
        losses[i] = measure_int8(model, tensor, grams);
        context.progress.advance(tensor.source.length_bytes);
        continue;
      }
      SolverOptions options = context.options.ternary_trunk.solver;
      options.planes = tensor.format == Format::kTernary2 ? 2 : 1;
      const uint64_t key = solution_key(tensor, source_hashes[i], *input, options);
      std::optional<StoredSolution> solution = context.solutions->find(key, planned_bytes(tensor));
      if (solution) {
        ++found;
        context.progress.advance(tensor.source.length_bytes);
      } else {
        solution = solve(model, tensor, source_hashes[i], grams, options, context.progress);
        context.solutions->put(key, *solution);
      }
      tensor.solution = key;
      losses[i] = solution->loss;
    }
  }
  context.progress.finish();
  if (found > 0) {
    context.progress.line("solve: " + std::to_string(found) + " matrices were solved before, in " +
                          context.solutions->folder());
  }
  return losses;
}

}  // namespace k3
