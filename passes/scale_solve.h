// The scales of a row, all together: with the codes fixed the lost energy is quadratic in them, so
// its least value is a linear system away.
#pragma once

#include <cstdint>

#include "passes/row_block.h"
#include "passes/ternary_codes.h"

namespace k3 {

// Sets the scales of every row to their joint optimum; a scale that comes out negative is made
// positive and its group's codes change sign. Groups without a code other than 0 keep theirs. The
// slopes are kept true. Returns the multiply-adds spent in products.
double solve_scales(RowBlock& block, const Loss& loss);

// Rounds the scales to what a pack stores, row_scale x multiplier, and writes both down in `out`,
// from row `first_row` on. The slopes are no longer true.
void round_scales(RowBlock& block, int64_t first_row, TernaryCodes& out);

}  // namespace k3
