// The one way a CPU operation spreads over threads: disjoint ranges of independent rows.
#pragma once

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstdint>

namespace k3 {

// Calls body(begin, end) for ranges that cover [0, count), on several threads if the work is worth
// it. `cost_each` is what one row costs, in elementary steps (about a nanosecond each, as a vector
// of them takes); ranges of less than 2^15 steps are not split, so that a small operation runs
// inline without a task. The bodies write disjoint outputs: how ranges are cut changes no bits.
template <class Body>
void parallel_ranges(int64_t count, int64_t cost_each, const Body& body) {
  constexpr int64_t kRangeCost = int64_t{1} << 15;
  const int64_t grain = std::max<int64_t>(1, kRangeCost / std::max<int64_t>(1, cost_each));
  if (count <= grain) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  tbb::parallel_for(
      tbb::blocked_range<int64_t>(0, count, grain),
      [&](const tbb::blocked_range<int64_t>& range) { body(range.begin(), range.end()); });
}

}  // namespace k3
