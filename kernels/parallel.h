// The one way a CPU operation spreads over threads: disjoint ranges of independent rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/thread_team.h"

namespace k3 {

// Calls body(begin, end) for ranges that cover [0, count), on several threads if the work is worth
// it. `cost_each` is what one row costs, in nanoseconds or so; a range costs about 4 microseconds
// or more, so that a small operation runs inline, and each thread gets up to eight, so that one
// that comes late takes fewer. The bodies write disjoint outputs: how ranges are cut changes no
// bits.
template <class Body>
void parallel_ranges(int64_t count, int64_t cost_each, const Body& body) {
  constexpr int64_t kRangeCost = int64_t{1} << 12;
  constexpr int64_t kRangesPerThread = 8;
  const int64_t least = std::max<int64_t>(1, kRangeCost / std::max<int64_t>(1, cost_each));
  if (count <= least) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  const int64_t threads = team_threads();
  const int64_t most_ranges = threads * kRangesPerThread;
  const int64_t grain = std::max(least, (count + most_ranges - 1) / most_ranges);
  run_ranges(
      threads, count, grain,
      [](const void* typed, int64_t begin, int64_t end) {
        (*static_cast<const Body*>(typed))(begin, end);
      },
      &body);
}

}  // namespace k3
