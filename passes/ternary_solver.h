// Solves a matrix for a ternary format: the codes and scales that lose the least of its output,
// given the Gram matrix of what it reads.
//
// With E = W^ - W the lost energy is tr(E H E^T). No polynomial method finds the best codes, so
// these steps follow each other, none of which may raise a row's loss, tr(E (H + r I) E^T):
//   exact scale  the best scale of every block of 160 inputs by the weights alone
//   feedback     codes input by input, each error made good by the inputs that follow
//   descent      one code after the other to its best value, then all scales of the row together
//   annealed     descent with noise that dies out, and descent again
//   trained      straight-through training, for those who ask for it, and descent again
//   stored       scales to row_scale x u8 multiplier, and descent on the codes with these
// Rows do not know each other: a row's result depends on that row, its number, H and the options,
// not on the other rows, the number of threads or the instruction set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "passes/solver_options.h"
#include "passes/ternary_codes.h"

namespace k3 {

// All matrices are row-major. A Gram matrix is [cols, cols], symmetric, the sum or mean of x x^T:
// results do not change with a factor. The spans' owner outlives the call.
struct SolveInput {
  int64_t rows = 0;
  int64_t cols = 0;
  // Fills `weights`, whole rows from `first_row` on. Called from several threads at once, for
  // disjoint ranges; what it throws ends the solve.
  std::function<void(int64_t first_row, std::span<float> weights)> read_rows;
  std::span<const float> gram;         // H, of what the matrix reads in the compressed model
  std::span<const float> cross_gram;   // sum of x x_q^T, x of the original model; may be empty
  std::span<const float> select_gram;  // of documents that H has not seen; may be empty
  // Told the rows that are done, from several threads; may be empty.
  std::function<void(int64_t rows)> on_rows;
};

// sqrt(tr(E H E^T) / tr(W H W^T)) after a step. With a cross-Gram, W is the propagated target.
struct StepError {
  std::string_view step;  // "rounding", "exact scale", "feedback", "descent", "annealed",
                          // "trained", "stored"
  double fit = 0;
  std::optional<double> select;
  double seconds = 0;  // of all threads together, for this step alone, measuring not included
};

struct TernarySolution {
  TernaryCodes codes;
  std::vector<StepError> steps;  // in the order of work; the last one is "stored"
  int64_t sweeps = 0;            // of descent, the most that any row block took
  double multiplications = 0;    // multiply-adds spent in products
  double seconds = 0;            // wall clock

  const StepError& stored() const { return steps.back(); }
};

// The ridge with the least error on select_gram, out of a few, tried on 64 rows at most without
// annealing and training: options.ridge, unless the input has a select_gram. Matrices that read the
// same input may share it.
double choose_ridge(const SolveInput& input, const SolverOptions& options);

// Throws Error for a Gram matrix that is not finite or has a negative diagonal element, and what
// read_rows throws.
TernarySolution solve_ternary(const SolveInput& input, const SolverOptions& options);

}  // namespace k3
