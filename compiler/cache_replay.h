// What an expert cache would have hit on a recorded trace, at any size and under several policies.
//
// A request is one token in one layer: its k experts. Those in the cache when it comes are hits.
// Then all k are in the cache, and what had to leave for them was none of the k. Requests come
// token by token, each token through all layers. This is what the runtime's cache does when it
// decodes, so that the replay's hits are its hits, exactly, as long as it does not prefetch.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/trace_routing.h"

namespace k3 {

enum class CachePolicy : uint8_t {
  kLru,         // the longest unused leaves; a request's experts are used in ascending source id
  kLayerLru,    // an LRU of its own for each layer, all of one size
  kDecayedLfu,  // the one of least use leaves, where a use counts half after 32 tokens
  kBelady,  // the one that is needed again last leaves: no cache that fetches on demand does better
};

inline constexpr std::array<std::string_view, 4> kCachePolicyNames = {"LRU", "per-layer LRU",
                                                                      "decayed LFU", "Belady"};

// The trace as requests.
struct ReplayRequests {
  int64_t layers = 0;
  int64_t experts = 0;
  int64_t tokens = 0;
  // Of each request, token by token and within it layer by layer: where its experts start in
  // `experts_asked`; one more entry at the end.
  std::vector<int64_t> begins;
  std::vector<uint32_t> experts_asked;  // layer x experts + source id, ascending in a request
};

// The first `most_tokens` tokens.
ReplayRequests list_requests(const RoutingTable& table, int64_t most_tokens);

// Hits of a cache with room for `slots` experts that starts empty.
int64_t replay_hits(const ReplayRequests& requests, CachePolicy policy, int64_t slots);

// Hits of a cache that holds everything it ever saw: all but the first use of each expert.
int64_t most_hits(const ReplayRequests& requests);

}  // namespace k3
