// F_L, the fixed point in which a layer's routed experts are added.
//
// The exact numerics add expert outputs as integers of 2^-F_L, in any order, on any device. The sum
// must never leave int64, and F_L should be as large as that allows. An output is at most
//   |activation| x max row sum of |w2| x sum of the routing weights,
// so a bound on the row sums over *all* experts of the source fixes F_L before anyone chooses which
// to keep: pruning a bank must not change the bits of the experts that stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "schema/model_config.h"

namespace k3 {

// A bound on the row sums of |w2| from its scale plane alone: the largest row of
// sum over groups of 32 x 6 x 2^(scale - 127). `scales` is [rows, groups].
double row_bound_mxfp4(std::span<const std::byte> scales, int64_t rows);

// The largest row sum of |w|; not finite when a weight is not. `weights` is [rows, cols] bf16,
// row-major, little-endian.
double row_bound_bf16(std::span<const std::byte> weights, int64_t rows);

// The largest F with  A x row_bound x W x 2^F < 2^62, where A = config.largest_activation() and W =
// max(1, factor), or factor x experts_per_token without renormalisation, bounds the routing
// weights' sum. For a bound of 0 any F would do: 62. `row_bound` is finite.
int32_t fixed_point_for(const ModelConfig& config, double row_bound);

}  // namespace k3
