// Straight-through training on the lost energy itself: latent weights and scales follow its
// gradient as if rounding were not there (arXiv 1308.3432), in full batches, since H holds all
// tokens at once. It leaves the valley that coordinate descent ended in, where the spectrum of H is
// steep; descent has the last word.
#pragma once

#include "passes/row_block.h"
#include "passes/solver_options.h"

namespace k3 {

// Trains for options.training_steps steps from the codes and scales of the block, and leaves each
// row at the best it came by. The slopes are kept true. Returns the
// multiply-adds spent in products.
double train_straight_through(RowBlock& block, const Loss& loss, const SolverOptions& options);

}  // namespace k3
