// The steps in their order, a block of rows at a time, blocks on all threads. What a step must not
// do, raise a row's error, is ensured here for those that are not monotone by themselves: each row
// keeps the better of before and after.
#include "passes/ternary_solver.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "passes/coordinate_descent.h"
#include "passes/damped_factor.h"
#include "passes/error_feedback.h"
#include "passes/matrix_loss.h"
#include "passes/output_error.h"
#include "passes/propagated_target.h"
#include "passes/row_block.h"
#include "passes/scale_solve.h"
#include "passes/straight_through.h"
#include "passes/ternary_round.h"
#include "schema/error.h"
#include "schema/float_product.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

enum Step : size_t {
  kRounding,
  kExactScale,
  kFeedback,
  kDescent,
  kAnnealed,
  kTrained,
  kStored,
  kSteps
};
static_assert(kSolverSteps.size() == kSteps);

// What a row's output is and what each step loses of it; summed over rows in their order, so that
// the sums do not depend on who solved them.
struct RowRecord {
  double fit_energy = 0;
  double select_energy = 0;
  std::array<double, kSteps> fit = {};
  std::array<double, kSteps> select = {};
};

void check_gram(std::span<const float> gram, int64_t cols, std::string_view name) {
  K3_CHECK(gram.size() == static_cast<size_t>(cols * cols));
  tbb::parallel_for(int64_t{0}, cols, [&](int64_t i) {
    for (int64_t j = 0; j < cols; ++j) {
      const float value = gram[static_cast<size_t>(i * cols + j)];
      if (std::isfinite(value) && (i != j || value >= 0)) continue;
      throw Error(name, ": element ", i, ", ", j, " is ", value,
                  ", expected a Gram matrix of finite inputs");
    }
  });
}

// Codes and scales that need nothing but the weights: for one plane the rule of BitNet (arXiv
// 2402.17764), a scale of mean |w|; for two, the largest level at the largest weight.
float plain_scale(std::span<const float> weights, int largest_code) {
  double sum = 0;
  double largest = 0;
  for (const float weight : weights) {
    const double magnitude = std::fabs(static_cast<double>(weight));
    sum += magnitude;
    largest = std::max(largest, magnitude);
  }
  return static_cast<float>(largest_code == 1 ? sum / static_cast<double>(weights.size())
                                              : largest / largest_code);
}

template <class ScaleOf>
void round_block(RowBlock& block, const ScaleOf& scale_of) {
  for (int64_t r = 0; r < block.rows; ++r) {
    for (int64_t group = 0; group < block.groups; ++group) {
      const int64_t begin = block.group_begin(group);
      const std::span<const float> weights(block.weight_row(r) + begin,
                                           static_cast<size_t>(block.group_size(group)));
      const auto scale = static_cast<float>(scale_of(weights, block.largest_code));
      block.scale_row(r)[group] = scale;
      for (size_t j = 0; j < weights.size(); ++j) {
        block.code_row(r)[begin + static_cast<int64_t>(j)] =
            scale > 0 ? nearest_code(weights[j], scale, block.largest_code) : int8_t{0};
      }
    }
  }
}

// What the row blocks have spent, together.
struct Spent {
  std::array<double, kSteps> seconds = {};
  double multiplications = 0;
  int64_t most_sweeps = 0;
};

// Everything that the row blocks share.
class RowSolver {
 public:
  RowSolver(const SolveInput& input, const SolverOptions& options, TernaryCodes& codes)
      : input_(input),
        options_(options),
        codes_(codes),
        loss_{input.gram, input.cols, ridge_of(input, options.ridge)},
        feedback_(input.gram, input.cols, ridge_of(input, options.ridge + options.damping)),
        records_(static_cast<size_t>(input.rows)) {
    if (!input.cross_gram.empty()) {
      map_ = propagated_map(input.gram, input.cross_gram, input.cols, options.propagated_strength,
                            options.propagated_damping);
    }
  }

  void solve_rows(int64_t first_row, int64_t rows);
  std::vector<StepError> step_errors() const;
  const Spent& spent() const { return spent_; }

 private:
  // A matrix that reads nothing but zeros is solved as if its inputs were white.
  static float ridge_of(const SolveInput& input, double share) {
    const double mean = mean_diagonal(input.gram, input.cols);
    return static_cast<float>(mean > 0 ? share * mean : 1.0);
  }

  void read(RowBlock& block, int64_t first_row) const;
  void record_weights(RowBlock& block, int64_t first_row);
  void record(const RowBlock& block, int64_t first_row, Step step);
  void feed_back(RowBlock& block, Spent& spent) const;
  void descend(RowBlock& block, int64_t rounds, Spent& spent) const;
  void anneal(RowBlock& block, int64_t first_row, Spent& spent) const;
  void train(RowBlock& block, Spent& spent) const;
  void store(RowBlock& block, int64_t first_row, Spent& spent) const;

  bool taken(Step step) const {
    if (step == kAnnealed) return options_.annealing_sweeps > 0;
    return step != kTrained || options_.training_steps > 0;
  }
  bool measured(Step step) const {
    return taken(step) && (options_.measure_steps || step == kStored);
  }

  const SolveInput& input_;
  const SolverOptions& options_;
  TernaryCodes& codes_;
  Loss loss_;
  ErrorFeedback feedback_;
  std::vector<float> map_;  // empty without a cross-Gram
  std::vector<RowRecord> records_;
  std::mutex mutex_;
  Spent spent_;
};

void RowSolver::read(RowBlock& block, int64_t first_row) const {
  const int64_t cols = block.cols;
  std::vector<float> weights(static_cast<size_t>(block.rows * cols));
  input_.read_rows(first_row, weights);
  if (map_.empty()) {
    for (int64_t r = 0; r < block.rows; ++r) {
      std::copy_n(weights.data() + r * cols, cols, block.weight_row(r));
    }
  } else {
    add_float_product(block.rows, cols, cols, {weights.data(), cols}, {map_.data(), cols},
                      block.weights.data(), block.stride);
  }
}

// The energies of the weights themselves: those lost by codes that are all 0.
void RowSolver::record_weights(RowBlock& block, int64_t first_row) {
  refresh_slopes(block, loss_);
  for (int64_t r = 0; r < block.rows; ++r) {
    records_[static_cast<size_t>(first_row + r)].fit_energy = lost_energy(block, loss_, r);
  }
  if (input_.select_gram.empty()) return;
  const std::vector<double> energies = output_energies(
      block.weights.data(), block.rows, block.stride, block.cols, input_.select_gram);
  for (int64_t r = 0; r < block.rows; ++r) {
    records_[static_cast<size_t>(first_row + r)].select_energy = energies[static_cast<size_t>(r)];
  }
}

void RowSolver::record(const RowBlock& block, int64_t first_row, Step step) {
  if (!measured(step)) return;
  for (int64_t r = 0; r < block.rows; ++r) {
    records_[static_cast<size_t>(first_row + r)].fit[step] = lost_energy(block, loss_, r);
  }
  if (input_.select_gram.empty()) return;
  const std::vector<float> errors = value_errors(block);
  const std::vector<double> energies =
      output_energies(errors.data(), block.rows, block.stride, block.cols, input_.select_gram);
  for (int64_t r = 0; r < block.rows; ++r) {
    records_[static_cast<size_t>(first_row + r)].select[step] = energies[static_cast<size_t>(r)];
  }
}

void RowSolver::feed_back(RowBlock& block, Spent& spent) const {
  const RowBlock before = block;
  spent.multiplications += feedback_.choose_codes(block);
  spent.multiplications += refresh_slopes(block, loss_);
  keep_better(block, before);
}

void RowSolver::descend(RowBlock& block, int64_t rounds, Spent& spent) const {
  const DescentLimits limits{options_.settled_share, options_.most_sweeps};
  int64_t sweeps = 0;
  for (int64_t round = 0; round <= rounds; ++round) {
    const DescentWork work = descend_codes(block, loss_, limits);
    sweeps += work.sweeps;
    spent.multiplications += work.multiplications;
    if (round < rounds) spent.multiplications += solve_scales(block, loss_);
  }
  spent.most_sweeps += sweeps;
}

void RowSolver::anneal(RowBlock& block, int64_t first_row, Spent& spent) const {
  const RowBlock before = block;
  const DescentWork work =
      anneal_codes(block, loss_, first_row, options_.annealing_sweeps, options_.annealing_heat);
  spent.multiplications += work.multiplications;
  spent.most_sweeps += work.sweeps;
  descend(block, 1, spent);
  keep_better(block, before);
}

void RowSolver::train(RowBlock& block, Spent& spent) const {
  const RowBlock before = block;
  spent.multiplications += train_straight_through(block, loss_, options_);
  descend(block, 1, spent);
  keep_better(block, before);
}

void RowSolver::store(RowBlock& block, int64_t first_row, Spent& spent) const {
  round_scales(block, first_row, codes_);
  spent.multiplications += refresh_slopes(block, loss_);
  descend(block, 0, spent);
  for (int64_t r = 0; r < block.rows; ++r) {
    std::copy_n(block.code_row(r), block.cols, codes_.row_codes(first_row + r).begin());
  }
}

void RowSolver::solve_rows(int64_t first_row, int64_t rows) {
  RowBlock block(rows, input_.cols, options_.planes == 1 ? 1 : 4);
  read(block, first_row);
  record_weights(block, first_row);
  Spent spent;
  const auto take = [&](Step step, const auto& work) {
    if (!taken(step)) return;
    const Stopwatch watch;
    work();
    spent.seconds[step] = watch.seconds();
    record(block, first_row, step);
  };
  const auto round = [&](auto scale_of) {
    round_block(block, scale_of);
    spent.multiplications += refresh_slopes(block, loss_);
  };
  if (measured(kRounding)) take(kRounding, [&] { round(plain_scale); });
  take(kExactScale, [&] { round(exact_scale); });
  take(kFeedback, [&] { feed_back(block, spent); });
  take(kDescent, [&] { descend(block, options_.most_rounds, spent); });
  take(kAnnealed, [&] { anneal(block, first_row, spent); });
  take(kTrained, [&] { train(block, spent); });
  take(kStored, [&] { store(block, first_row, spent); });
  if (input_.on_rows) input_.on_rows(rows);

  const std::scoped_lock lock(mutex_);
  for (size_t step = 0; step < kSteps; ++step) spent_.seconds[step] += spent.seconds[step];
  spent_.multiplications += spent.multiplications;
  spent_.most_sweeps = std::max(spent_.most_sweeps, spent.most_sweeps);
}

std::vector<StepError> RowSolver::step_errors() const {
  RowRecord sum;
  for (const RowRecord& row : records_) {
    sum.fit_energy += row.fit_energy;
    sum.select_energy += row.select_energy;
    for (size_t step = 0; step < kSteps; ++step) {
      sum.fit[step] += row.fit[step];
      sum.select[step] += row.select[step];
    }
  }
  std::vector<StepError> errors;
  for (size_t i = 0; i < kSteps; ++i) {
    const auto step = static_cast<Step>(i);
    if (!measured(step)) continue;
    StepError error;
    error.step = kSolverSteps[step];
    error.fit = relative_error(sum.fit[step], sum.fit_energy);
    if (!input_.select_gram.empty())
      error.select = relative_error(sum.select[step], sum.select_energy);
    error.seconds = spent_.seconds[step];
    errors.push_back(error);
  }
  return errors;
}

// Enough blocks for all threads, none so small that products are slow or so large that a block
// would not be a small part of memory beside H.
int64_t rows_at_once(int64_t rows, int64_t cols) {
  constexpr int64_t kMostWeights = int64_t{512} * 7168;
  const int64_t fair = divide_up(rows, int64_t{4} * tbb::this_task_arena::max_concurrency());
  return std::clamp(align_up(fair, 16), int64_t{16},
                    std::clamp(kMostWeights / cols / 16 * 16, int64_t{16}, int64_t{512}));
}

}  // namespace

double choose_ridge(const SolveInput& input, const SolverOptions& options) {
  if (input.select_gram.empty()) return options.ridge;
  constexpr int64_t kTrialRows = 64;
  constexpr std::array<double, 7> kRidges = {0, 0.01, 0.03, 0.1, 0.3, 1, 10};
  SolveInput trial = input;
  trial.rows = std::min(kTrialRows, input.rows);
  trial.on_rows = nullptr;
  // Read once: a row of rotated outputs costs a read of the whole matrix.
  std::vector<float> rows(static_cast<size_t>(trial.rows * input.cols));
  for (int64_t row = 0; row < trial.rows; ++row) {
    input.read_rows(row * input.rows / trial.rows,
                    std::span(rows).subspan(static_cast<size_t>(row * input.cols),
                                            static_cast<size_t>(input.cols)));
  }
  trial.read_rows = [&](int64_t first_row, std::span<float> weights) {
    std::copy_n(rows.begin() + first_row * input.cols, weights.size(), weights.begin());
  };
  SolverOptions fast = options;
  fast.annealing_sweeps = 0;
  fast.training_steps = 0;
  fast.measure_steps = false;
  double best = options.ridge;
  double least = INFINITY;
  for (const double ridge : kRidges) {
    fast.ridge = ridge;
    const double error = solve_ternary(trial, fast).stored().select.value();
    if (error >= least) continue;
    least = error;
    best = ridge;
  }
  return best;
}

TernarySolution solve_ternary(const SolveInput& input, const SolverOptions& options) {
  K3_CHECK(input.rows > 0 && input.cols > 0);
  K3_CHECK((options.planes == 1 || options.planes == 2) && options.ridge >= 0 &&
           options.damping > 0);
  const Stopwatch watch;
  check_gram(input.gram, input.cols, "Gram matrix");
  if (!input.select_gram.empty()) check_gram(input.select_gram, input.cols, "select Gram matrix");

  TernarySolution solution;
  solution.codes = TernaryCodes(input.rows, input.cols);
  RowSolver solver(input, options, solution.codes);
  const int64_t step = rows_at_once(input.rows, input.cols);
  tbb::parallel_for(int64_t{0}, divide_up(input.rows, step), [&](int64_t i) {
    solver.solve_rows(i * step, std::min(step, input.rows - i * step));
  });
  solution.steps = solver.step_errors();
  solution.sweeps = solver.spent().most_sweeps;
  solution.multiplications = solver.spent().multiplications;
  solution.seconds = watch.seconds();
  return solution;
}

}  // namespace k3
