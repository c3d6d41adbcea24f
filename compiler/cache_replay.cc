#include "compiler/cache_replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr double kHalfLifeTokens = 32;

// Experts by when they were last used, as a list through two arrays: every step is constant time.
class RecencyList {
 public:
  explicit RecencyList(size_t experts)
      : older_(experts + 1, kAbsent), newer_(experts + 1, kAbsent), end_(experts) {
    older_[end_] = newer_[end_] = end_;
  }

  bool contains(size_t expert) const { return newer_[expert] != kAbsent; }
  int64_t size() const { return size_; }
  size_t oldest() const { return newer_[end_]; }
  void remove(size_t expert) {
    newer_[older_[expert]] = newer_[expert];
    older_[newer_[expert]] = older_[expert];
    older_[expert] = newer_[expert] = kAbsent;
    --size_;
  }
  void add_newest(size_t expert) {
    older_[expert] = older_[end_];
    newer_[expert] = end_;
    newer_[older_[expert]] = expert;
    older_[end_] = expert;
    ++size_;
  }

 private:
  static constexpr size_t kAbsent = std::numeric_limits<size_t>::max();
  // end_ closes the ring: after it comes the oldest, before it the newest.
  std::vector<size_t> older_, newer_;
  size_t end_;
  int64_t size_ = 0;
};

std::span<const uint32_t> request_at(const ReplayRequests& requests, size_t index) {
  const auto begin = static_cast<size_t>(requests.begins[index]);
  return std::span(requests.experts_asked)
      .subspan(begin, static_cast<size_t>(requests.begins[index + 1]) - begin);
}

// One LRU over all experts, or one per layer.
int64_t replay_lru(const ReplayRequests& requests, int64_t slots, bool per_layer) {
  const int64_t caches = per_layer ? requests.layers : 1;
  const auto experts = static_cast<size_t>(requests.layers * requests.experts);
  std::vector<RecencyList> lists;
  for (int64_t cache = 0; cache < caches; ++cache) {
    lists.emplace_back(per_layer ? static_cast<size_t>(requests.experts) : experts);
  }
  int64_t hits = 0;
  for (size_t i = 0; i + 1 < requests.begins.size(); ++i) {
    const auto cache = per_layer ? static_cast<int64_t>(i) % requests.layers : 0;
    RecencyList& list = lists[static_cast<size_t>(cache)];
    // The remainder of an uneven division goes to the first layers.
    const int64_t room = slots / caches + (cache < slots % caches ? 1 : 0);
    const auto first = static_cast<size_t>(cache * requests.experts);
    const auto asked = request_at(requests, i);
    for (const uint32_t expert : asked) {  // hits leave the order, so that they cannot be evicted
      if (!list.contains(expert - first)) continue;
      ++hits;
      list.remove(expert - first);
    }
    while (list.size() > 0 && list.size() + std::ssize(asked) > room) list.remove(list.oldest());
    for (const uint32_t expert : asked) {
      if (list.size() == room && room > 0) list.remove(list.oldest());
      if (room > 0) list.add_newest(expert - first);
    }
  }
  return hits;
}

// A cache that evicts what has the least value; a use changes an expert's value and no other's.
class ValueCache {
 public:
  explicit ValueCache(size_t experts)
      : values_(experts, -std::numeric_limits<double>::infinity()), held_(experts) {}

  // `values` has the new value of each expert asked.
  int64_t request(std::span<const uint32_t> asked, std::span<const double> values, int64_t room) {
    int64_t hits = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const uint32_t expert = asked[i];
      if (held_[expert]) {
        ++hits;
        order_.erase({values_[expert], expert});
        held_[expert] = false;
      }
      values_[expert] = values[i];
    }
    while (!order_.empty() && std::ssize(order_) + std::ssize(asked) > room) {
      held_[order_.begin()->second] = false;
      order_.erase(order_.begin());
    }
    for (const uint32_t expert : asked) {
      if (std::ssize(order_) == room) break;
      order_.emplace(values_[expert], expert);
      held_[expert] = true;
    }
    return hits;
  }
  double value(uint32_t expert) const { return values_[expert]; }

 private:
  std::vector<double> values_;
  std::vector<bool> held_;
  std::set<std::pair<double, uint32_t>> order_;
};

// The value of an expert used at times t is log2 of the sum of 2^(t / half-life). As time passes
// all values fall behind alike, so none needs an update but those used.
int64_t replay_decayed_lfu(const ReplayRequests& requests, int64_t slots) {
  ValueCache cache(static_cast<size_t>(requests.layers * requests.experts));
  int64_t hits = 0;
  std::vector<double> values;
  for (size_t i = 0; i + 1 < requests.begins.size(); ++i) {
    const auto asked = request_at(requests, i);
    const int64_t token = static_cast<int64_t>(i) / requests.layers;
    const double now = static_cast<double>(token) / kHalfLifeTokens;
    values.clear();
    for (const uint32_t expert : asked) {
      const double earlier = cache.value(expert);
      const double high = std::max(now, earlier);
      values.push_back(high + std::log2(1 + std::exp2(std::min(now, earlier) - high)));
    }
    hits += cache.request(asked, values, slots);
  }
  return hits;
}

// The value of an expert is how soon it is needed again.
int64_t replay_belady(const ReplayRequests& requests, int64_t slots) {
  const auto experts = static_cast<size_t>(requests.layers * requests.experts);
  const double never = std::numeric_limits<double>::infinity();
  std::vector<double> next_use(requests.experts_asked.size());
  std::vector<double> soonest(experts, never);
  for (size_t i = requests.begins.size() - 1; i-- > 0;) {
    for (int64_t at = requests.begins[i]; at < requests.begins[i + 1]; ++at) {
      const uint32_t expert = requests.experts_asked[static_cast<size_t>(at)];
      next_use[static_cast<size_t>(at)] = -soonest[expert];
      soonest[expert] = static_cast<double>(i);
    }
  }
  ValueCache cache(experts);
  int64_t hits = 0;
  for (size_t i = 0; i + 1 < requests.begins.size(); ++i) {
    const auto asked = request_at(requests, i);
    hits += cache.request(
        asked, std::span(next_use).subspan(static_cast<size_t>(requests.begins[i]), asked.size()),
        slots);
  }
  return hits;
}

}  // namespace

ReplayRequests list_requests(const RoutingTable& table, int64_t most_tokens) {
  ReplayRequests requests{.layers = table.layers(),
                          .experts = table.header.experts,
                          .tokens = std::min(most_tokens, std::ssize(table.tokens)),
                          .begins = {0},
                          .experts_asked = {}};
  for (int64_t token = 0; token < requests.tokens; ++token) {
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      for (const uint16_t id : table.row(token, layer)) {
        if (id == kNoExpert) continue;
        requests.experts_asked.push_back(static_cast<uint32_t>(layer * requests.experts + id));
      }
      requests.begins.push_back(std::ssize(requests.experts_asked));
    }
  }
  return requests;
}

int64_t replay_hits(const ReplayRequests& requests, CachePolicy policy, int64_t slots) {
  K3_CHECK(slots >= 0);
  switch (policy) {
    case CachePolicy::kLru:
      return replay_lru(requests, slots, false);
    case CachePolicy::kLayerLru:
      return replay_lru(requests, slots, true);
    case CachePolicy::kDecayedLfu:
      return replay_decayed_lfu(requests, slots);
    case CachePolicy::kBelady:
      return replay_belady(requests, slots);
  }
  return 0;
}

int64_t most_hits(const ReplayRequests& requests) {
  std::vector<bool> seen(static_cast<size_t>(requests.layers * requests.experts));
  int64_t hits = 0;
  for (const uint32_t expert : requests.experts_asked) {
    hits += seen[expert] ? 1 : 0;
    seen[expert] = true;
  }
  return hits;
}

}  // namespace k3
