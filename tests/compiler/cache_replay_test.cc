#include "compiler/cache_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace k3 {
namespace {

RoutingTable table(int64_t layers, int64_t experts, int64_t k,
                   const std::vector<std::vector<uint16_t>>& rows) {
  RoutingTable result;
  result.header.experts = experts;
  result.header.experts_per_token = k;
  for (int64_t layer = 0; layer < layers; ++layer) {
    result.header.layers.push_back(static_cast<uint32_t>(layer));
  }
  for (const std::vector<uint16_t>& row : rows)
    result.ids.insert(result.ids.end(), row.begin(), row.end());
  result.tokens.resize(rows.size() / static_cast<size_t>(layers));
  return result;
}

int64_t hits(const RoutingTable& routing, CachePolicy policy, int64_t slots) {
  return replay_hits(list_requests(routing, 1 << 20), policy, slots);
}

// Two layers of 6 experts, 40 tokens of 2 experts a layer, with a preference for low ids.
RoutingTable made_up(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<uint16_t>> rows;
  for (int i = 0; i < 80; ++i) {
    std::set<uint16_t> ids;
    while (ids.size() < 2) ids.insert(static_cast<uint16_t>(random() % (1 + random() % 6)));
    rows.emplace_back(ids.begin(), ids.end());
  }
  return table(2, 6, 2, rows);
}

TEST(CacheReplay, LruEvictsTheLongestUnused) {
  const RoutingTable one = table(1, 9, 1, {{1}, {2}, {1}, {3}, {2}, {1}});
  // 1 2 | hit 1 | 3 evicts 2 | 2 evicts 1 | 1 evicts 3
  EXPECT_EQ(hits(one, CachePolicy::kLru, 2), 1);
  EXPECT_EQ(hits(one, CachePolicy::kLru, 3), 3);
}

TEST(CacheReplay, ARequestIsUsedInAscendingSourceId) {
  // After {1, 2} the older one is 1, so 5 takes its place.
  EXPECT_EQ(hits(table(1, 10, 2, {{1, 2}, {2, 5}, {1, 9}}), CachePolicy::kLru, 2), 1);
  const RoutingTable after = table(1, 10, 1, {{4}, {1}, {2}, {4}});
  EXPECT_EQ(hits(after, CachePolicy::kLru, 3), 1);
}

TEST(CacheReplay, WhatARequestHitsIsNotEvictedForWhatItMisses) {
  // 2 is the oldest when {2, 7} comes, and stays.
  EXPECT_EQ(hits(table(1, 9, 2, {{1, 2}, {1, 3}, {2, 7}}), CachePolicy::kLru, 3), 2);
}

TEST(CacheReplay, LayersDoNotShareExperts) {
  EXPECT_EQ(hits(table(2, 9, 1, {{1}, {1}, {1}, {1}}), CachePolicy::kLru, 2), 2);
  EXPECT_EQ(hits(table(2, 9, 1, {{1}, {1}, {1}, {1}}), CachePolicy::kLru, 1), 0);
}

TEST(CacheReplay, APerLayerCacheGivesTheRemainderToTheFirstLayers) {
  // The first layer alternates between two experts, the second keeps one.
  const RoutingTable routing = table(2, 9, 1, {{1}, {5}, {2}, {5}, {1}, {5}, {2}, {5}});
  EXPECT_EQ(hits(routing, CachePolicy::kLayerLru, 3), 2 + 3);
  EXPECT_EQ(hits(routing, CachePolicy::kLayerLru, 2), 3);
}

TEST(CacheReplay, DecayedLfuKeepsWhatWasUsedOften) {
  const RoutingTable routing = table(1, 9, 1, {{1}, {1}, {1}, {2}, {3}, {1}});
  EXPECT_EQ(hits(routing, CachePolicy::kDecayedLfu, 2), 3);
  EXPECT_EQ(hits(routing, CachePolicy::kLru, 2), 2);
}

TEST(CacheReplay, DecayedLfuForgetsWhatWasUsedOftenLongAgo) {
  std::vector<std::vector<uint16_t>> rows = {{1}, {1}, {1}, {1}};
  for (int i = 0; i < 200; ++i) rows.push_back({2});
  rows.push_back({3});
  rows.push_back({2});
  EXPECT_EQ(hits(table(1, 9, 1, rows), CachePolicy::kDecayedLfu, 2), 3 + 199 + 1);
}

// Against every possible run of a demand cache, by search.
int64_t best_hits(const ReplayRequests& requests, int64_t slots) {
  std::map<std::set<uint32_t>, int64_t> best = {{{}, 0}};
  for (size_t i = 0; i + 1 < requests.begins.size(); ++i) {
    const std::set<uint32_t> asked(requests.experts_asked.begin() + requests.begins[i],
                                   requests.experts_asked.begin() + requests.begins[i + 1]);
    std::map<std::set<uint32_t>, int64_t> next;
    for (const auto& [held, so_far] : best) {
      int64_t found = so_far;
      for (const uint32_t expert : asked) found += held.contains(expert) ? 1 : 0;
      std::set<uint32_t> all = held;
      all.insert(asked.begin(), asked.end());
      // All ways to be rid of what is too much, among what was not asked for.
      const std::function<void(std::set<uint32_t>)> evict = [&](std::set<uint32_t> left) {
        if (std::ssize(left) <= slots) {
          next[left] = std::max(next[left], found);
          return;
        }
        for (const uint32_t expert : left) {
          if (asked.contains(expert)) continue;
          std::set<uint32_t> fewer = left;
          fewer.erase(expert);
          evict(fewer);
        }
      };
      evict(all);
    }
    best = std::move(next);
  }
  int64_t most = 0;
  for (const auto& each : best) most = std::max(most, each.second);
  return most;
}

TEST(CacheReplay, BeladyIsTheBestThatACacheOnDemandCanDo) {
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const ReplayRequests requests = list_requests(made_up(seed), 14);
    for (int64_t slots = 2; slots <= 6; ++slots) {
      EXPECT_EQ(replay_hits(requests, CachePolicy::kBelady, slots), best_hits(requests, slots))
          << "seed " << seed << ", slots " << slots;
    }
  }
}

TEST(CacheReplay, NoPolicyPassesBeladyNorBeladyTheCeiling) {
  const ReplayRequests requests = list_requests(made_up(7), 1000);
  EXPECT_EQ(requests.tokens, 40);
  for (int64_t slots = 2; slots <= 12; ++slots) {
    const int64_t best = replay_hits(requests, CachePolicy::kBelady, slots);
    for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kDecayedLfu}) {
      EXPECT_LE(replay_hits(requests, policy, slots), best);
    }
    EXPECT_LE(best, most_hits(requests));
  }
  for (size_t policy = 0; policy < kCachePolicyNames.size(); ++policy) {
    EXPECT_EQ(replay_hits(requests, static_cast<CachePolicy>(policy), 12), most_hits(requests));
  }
}

}  // namespace
}  // namespace k3
