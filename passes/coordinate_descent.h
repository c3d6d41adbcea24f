// Coordinate descent on codes: every code in turn goes to its best value while all else stands.
// Exact and monotone, a step that does not lower the row's loss is not taken; and with noise that
// dies out, which is neither, but ends in a better valley (annealing).
#pragma once

#include <cstdint>

#include "passes/row_block.h"

namespace k3 {

struct DescentLimits {
  double settled_share =
      0;  // a row is settled when a sweep changes at most this share of its codes
  int64_t most_sweeps = 0;
};

struct DescentWork {
  int64_t sweeps = 0;
  double multiplications = 0;
};

// Sweeps over the block's codes, group by group, each row until it is settled. The scales stay; the
// slopes are kept true.
DescentWork descend_codes(RowBlock& block, const Loss& loss, const DescentLimits& limits);

// `sweeps` sweeps in which each code goes to the level nearest to its best value plus noise. The
// noise is Gaussian as the spread of a value would be at a temperature (half of it on every degree
// of freedom) that falls from `heat` x the row's mean loss per weight to 0. The noise of a weight
// depends on its place, the sweep and its row's number, counted from `first_row`, alone.
DescentWork anneal_codes(RowBlock& block, const Loss& loss, int64_t first_row, int64_t sweeps,
                         double heat);

}  // namespace k3
