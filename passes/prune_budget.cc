#include "passes/prune_budget.h"

#include <algorithm>
#include <numeric>

#include "schema/error.h"

namespace k3 {

std::vector<double> rising(std::span<const double> values) {
  struct Pool {
    double sum;
    size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const double value : values) {
    pools.push_back({value, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().count += last.count;
    }
  }
  std::vector<double> smoothed;
  for (const Pool& pool : pools) smoothed.insert(smoothed.end(), pool.count, pool.mean());
  return smoothed;
}

// With losses that rise along every layer, taking the cheapest drop again and again is the best
// choice of drops.
std::vector<int64_t> spread_budget(std::span<const std::vector<double>> losses, int64_t floor,
                                   int64_t keep) {
  struct Drop {
    double loss;
    size_t layer;
  };
  std::vector<Drop> drops;
  std::vector<int64_t> kept;
  for (size_t layer = 0; layer < losses.size(); ++layer) {
    const auto experts = std::ssize(losses[layer]);
    K3_CHECK(experts >= floor);
    kept.push_back(experts);
    const std::vector<double> smoothed = rising(losses[layer]);
    for (int64_t i = 0; i < experts - floor; ++i) {
      drops.push_back({smoothed[static_cast<size_t>(i)], layer});
    }
  }
  const int64_t all = std::accumulate(kept.begin(), kept.end(), int64_t{0});
  const int64_t wanted = std::max<int64_t>(0, all - keep);
  K3_CHECK(wanted <= std::ssize(drops));
  std::stable_sort(drops.begin(), drops.end(),
                   [](const Drop& a, const Drop& b) { return a.loss < b.loss; });
  for (int64_t i = 0; i < wanted; ++i) --kept[drops[static_cast<size_t>(i)].layer];
  return kept;
}

}  // namespace k3
