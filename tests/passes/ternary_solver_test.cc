#include "passes/ternary_solver.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "passes/output_error.h"
#include "schema/error.h"
#include "tests/kernels/forced_target.h"
#include "tests/passes/random_layer.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

constexpr int64_t kCols = 330;  // three groups, the last one of 10

struct Layer {
  std::vector<float> weights;
  std::vector<float> gram;

  Layer(int64_t rows, int64_t cols, uint64_t seed)
      : weights(random_weights(rows * cols, seed)), gram(random_gram(cols, 4 * cols, seed + 1)) {}
};

// Rows [first, first + rows) of the layer.
SolveInput input_of(const Layer& layer, int64_t rows, int64_t cols = kCols) {
  SolveInput input;
  input.rows = rows;
  input.cols = cols;
  input.gram = layer.gram;
  input.read_rows = [&layer, cols](int64_t row, std::span<float> weights) {
    std::copy_n(layer.weights.begin() + row * cols, weights.size(), weights.begin());
  };
  return input;
}

SolverOptions quick() {
  SolverOptions options;
  options.annealing_sweeps = 10;
  options.training_steps = 5;
  return options;
}

bool same(const TernaryCodes& a, const TernaryCodes& b) {
  return a.codes == b.codes && a.multipliers == b.multipliers && a.row_scales == b.row_scales;
}

std::vector<float> stored_errors(const TernaryCodes& codes, const std::vector<float>& weights) {
  std::vector<float> errors(weights.size());
  for (int64_t r = 0; r < codes.rows; ++r) {
    const std::span<float> row = std::span(errors).subspan(static_cast<size_t>(r * codes.cols),
                                                           static_cast<size_t>(codes.cols));
    codes.decode_row(r, row);
  }
  for (size_t i = 0; i < errors.size(); ++i) errors[i] -= weights[i];
  return errors;
}

TEST(TernarySolver, NoStepRaisesTheErrorOnH) {
  const Layer layer(40, kCols, 1);
  for (const int planes : {1, 2}) {
    SolverOptions options = quick();
    options.planes = planes;
    options.ridge = 0;
    const TernarySolution solution = solve_ternary(input_of(layer, 40), options);
    ASSERT_EQ(solution.steps.size(), 7U);
    EXPECT_EQ(solution.steps.front().step, "rounding");
    EXPECT_EQ(solution.stored().step, "stored");
    double before = 1;
    for (const StepError& step : solution.steps) {
      // The last rounds the scales to a byte, which costs next to nothing.
      const double room = step.step == "stored" ? 1.003 : 1 + 1e-6;
      EXPECT_LE(step.fit, before * room) << step.step << " " << planes;
      before = step.fit;
    }
    EXPECT_LT(solution.stored().fit, 0.7 * solution.steps[1].fit);
  }
}

TEST(TernarySolver, ReportsTheErrorOfTheCodesItReturns) {
  const Layer layer(20, kCols, 3);
  const std::vector<float> other = random_gram(kCols, 4 * kCols, 50);
  SolveInput input = input_of(layer, 20);
  input.select_gram = other;
  const TernarySolution solution = solve_ternary(input, quick());
  const std::vector<float> errors = stored_errors(solution.codes, layer.weights);
  EXPECT_NEAR(solution.stored().fit, output_error(errors, layer.weights, kCols, layer.gram), 1e-5);
  EXPECT_NEAR(solution.stored().select.value(), output_error(errors, layer.weights, kCols, other),
              1e-5);
}

TEST(TernarySolver, CodesDoNotDependOnTheNumberOfThreads) {
  const Layer layer(70, kCols, 5);
  const TernarySolution many = solve_ternary(input_of(layer, 70), quick());
  tbb::task_arena one(1);
  one.execute([&] {
    const TernarySolution alone = solve_ternary(input_of(layer, 70), quick());
    EXPECT_TRUE(same(alone.codes, many.codes));
    EXPECT_EQ(alone.stored().fit, many.stored().fit);
  });
  const tbb::global_control more(tbb::global_control::max_allowed_parallelism, 7);
  tbb::task_arena seven(7);
  seven.execute(
      [&] { EXPECT_TRUE(same(solve_ternary(input_of(layer, 70), quick()).codes, many.codes)); });
}

TEST(TernarySolver, CodesDoNotDependOnTheInstructionSet) {
  const Layer layer(8, kCols, 6);
  const TernarySolution usual = solve_ternary(input_of(layer, 8), quick());
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    EXPECT_TRUE(same(solve_ternary(input_of(layer, 8), quick()).codes, usual.codes)) << target;
  }
}

TEST(TernarySolver, ARowDoesNotDependOnTheRowsBehindIt) {
  const Layer layer(50, kCols, 7);
  const TernarySolution all = solve_ternary(input_of(layer, 50), quick());
  const TernarySolution few = solve_ternary(input_of(layer, 3), quick());
  EXPECT_TRUE(std::equal(few.codes.codes.begin(), few.codes.codes.end(), all.codes.codes.begin()));
  EXPECT_TRUE(std::equal(few.codes.row_scales.begin(), few.codes.row_scales.end(),
                         all.codes.row_scales.begin()));
}

TEST(TernarySolver, ComesCloseToTheBestOfAllCodesAndScales) {
  constexpr int64_t kFew = 7;
  double reached = 0;
  double least = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Layer layer(1, kFew, seed);
    SolverOptions options;
    options.ridge = 0;
    const TernarySolution solution = solve_ternary(input_of(layer, 1, kFew), options);
    const std::vector<float> errors = stored_errors(solution.codes, layer.weights);
    reached += output_energies(errors.data(), 1, kFew, kFew, layer.gram)[0];
    // For given codes t the best scale takes (t H w)^2 / (t H t) off w H w.
    double best = 0;
    for (int number = 0; number < 2187; ++number) {
      int rest = number;
      double along = 0;
      double own = 0;
      int t[kFew];
      for (int& code : t) {
        code = rest % 3 - 1;
        rest /= 3;
      }
      for (size_t i = 0; i < kFew; ++i) {
        for (size_t j = 0; j < kFew; ++j) {
          const double h = layer.gram[i * kFew + j];
          along += t[i] * h * layer.weights[j];
          own += t[i] * h * t[j];
        }
      }
      if (own > 0) best = std::max(best, along * along / own);
    }
    least += output_energies(layer.weights.data(), 1, kFew, kFew, layer.gram)[0] - best;
  }
  EXPECT_GE(reached, least * (1 - 1e-4));
  EXPECT_LE(reached, least * 1.35);
}

TEST(TernarySolver, SolvesTheTargetThatUndoesEarlierErrors) {
  // Inputs of half the size: the whole target is twice the matrix, with the same codes.
  const Layer layer(6, kCols, 9);
  std::vector<float> twice = layer.gram;
  for (float& value : twice) value *= 2;
  SolveInput input = input_of(layer, 6);
  SolverOptions options = quick();
  options.propagated_damping = 1e-5;
  const TernarySolution plain = solve_ternary(input, options);
  input.cross_gram = twice;
  for (const double strength : {0.5, 1.0}) {
    options.propagated_strength = strength;
    const TernarySolution propagated = solve_ternary(input, options);
    for (size_t r = 0; r < 6; ++r) {
      EXPECT_NEAR(propagated.codes.row_scales[r], (1 + strength) * plain.codes.row_scales[r],
                  0.05 * plain.codes.row_scales[r]);
    }
  }
}

TEST(TernarySolver, LeavesNothingOfAMatrixOfZeros) {
  Layer layer(3, kCols, 10);
  std::fill(layer.weights.begin(), layer.weights.end(), 0.0F);
  const TernarySolution solution = solve_ternary(input_of(layer, 3), quick());
  EXPECT_EQ(solution.stored().fit, 0);
  EXPECT_TRUE(std::all_of(solution.codes.codes.begin(), solution.codes.codes.end(),
                          [](int8_t code) { return code == 0; }));
}

TEST(TernarySolver, FallsBackOnTheWeightsWhereInputsAreAllZero) {
  Layer layer(3, kCols, 11);
  std::fill(layer.gram.begin(), layer.gram.end(), 0.0F);
  const TernarySolution solution = solve_ternary(input_of(layer, 3), quick());
  const std::vector<float> errors = stored_errors(solution.codes, layer.weights);
  EXPECT_LT(output_error(errors, layer.weights, kCols, identity(kCols)), 0.46);
}

TEST(TernarySolver, RefusesAGramMatrixThatIsNone) {
  Layer layer(1, kCols, 12);
  layer.gram[3 * kCols + 4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(thrown_message([&] { solve_ternary(input_of(layer, 1), quick()); }),
            "Gram matrix: element 3, 4 is nan, expected a Gram matrix of finite inputs");
}

TEST(TernarySolver, PassesOnWhatReadingThrows) {
  const Layer layer(1, kCols, 13);
  SolveInput input = input_of(layer, 1);
  input.read_rows = [](int64_t, std::span<float>) { throw Error("shard: gone"); };
  EXPECT_EQ(thrown_message([&] { solve_ternary(input, quick()); }), "shard: gone");
}

TEST(TernarySolver, CountsEveryRowOnce) {
  const Layer layer(50, kCols, 14);
  SolveInput input = input_of(layer, 50);
  std::atomic<int64_t> rows = 0;
  input.on_rows = [&](int64_t done) { rows += done; };
  solve_ternary(input, quick());
  EXPECT_EQ(rows, 50);
}

TEST(ChooseRidge, TakesALargeOneWhereCorrelationsAreChance) {
  // White inputs: whatever correlation 2 cols samples show is chance.
  Layer layer(64, 64, 15);
  const auto white = [](uint64_t seed) {
    const std::vector<float> x = random_weights(128 * 64, seed);
    std::vector<float> gram(64 * 64);
    for (size_t s = 0; s < 128; ++s) {
      for (size_t i = 0; i < 64; ++i) {
        for (size_t j = 0; j < 64; ++j) gram[i * 64 + j] += x[s * 64 + i] * x[s * 64 + j] / 128;
      }
    }
    return gram;
  };
  layer.gram = white(1);
  const std::vector<float> select = white(2);
  SolveInput input = input_of(layer, 64, 64);
  input.select_gram = select;
  EXPECT_GE(choose_ridge(input, quick()), 1);
}

TEST(ChooseRidge, TakesLittleWhereEverythingIsKnown) {
  const Layer layer(64, kCols, 16);
  SolveInput input = input_of(layer, 64);
  input.select_gram = layer.gram;
  EXPECT_LE(choose_ridge(input, quick()), 0.1);
}

TEST(TernaryCodes, AreCopiedAndDecodedAsAReaderOfThePackDoes) {
  TernaryCodes codes(2, 161);
  codes.row_codes(1)[0] = -1;
  codes.row_codes(1)[160] = 1;
  codes.row_multipliers(1)[0] = 2;
  codes.row_multipliers(1)[1] = 255;
  codes.row_scales[1] = 0.5F;
  std::vector<int8_t> padded(320, 9);
  std::vector<uint8_t> multipliers(2);
  EXPECT_EQ(codes.copy_row(1, padded, multipliers), 0.5F);
  EXPECT_EQ(multipliers, (std::vector<uint8_t>{2, 255}));
  EXPECT_EQ(padded[0], -1);
  EXPECT_EQ(padded[160], 1);
  EXPECT_EQ(padded[161], 0);
  EXPECT_EQ(padded[319], 0);
  std::vector<float> weights(161);
  codes.decode_row(1, weights);
  EXPECT_EQ(weights[0], -1.0F);
  EXPECT_EQ(weights[160], 127.5F);
}

}  // namespace
}  // namespace k3
