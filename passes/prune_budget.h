// How many experts each layer keeps when all layers share a budget.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace k3 {

// `losses` has a list per layer: what dropping an expert costs, in the order in which the layer
// would drop them, least important first; entries are not negative. Returns how many each layer
// keeps, at least `floor` and together at most `keep`, so that the sum of what is dropped is
// least. Losses along a layer's order may fall (scores and losses need not agree), so they are
// first smoothed to rise: runs that fall become their mean. Ties go to the lower layer. K3_CHECKs
// that `keep` covers the floor; `floor` is at most any layer's count.
std::vector<int64_t> spread_budget(std::span<const std::vector<double>> losses, int64_t floor,
                                   int64_t keep);

// The nearest list that does not fall, by squares: pool adjacent violators.
std::vector<double> rising(std::span<const double> values);

}  // namespace k3
