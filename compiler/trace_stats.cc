#include "compiler/trace_stats.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "passes/expert_scores.h"
#include "schema/error.h"

namespace k3 {
namespace {

using TokenFilter = std::function<bool(const RoutedToken&, int64_t)>;  // token, and its number
using Counts = std::vector<std::vector<int64_t>>;                      // [layer][expert]

Counts count_choices(const RoutingTable& table, const TokenFilter& takes) {
  Counts counts(static_cast<size_t>(table.layers()),
                std::vector<int64_t>(static_cast<size_t>(table.header.experts)));
  for (int64_t token = 0; token < std::ssize(table.tokens); ++token) {
    if (!takes(table.tokens[static_cast<size_t>(token)], token)) continue;
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      for (const uint16_t id : table.row(token, layer)) {
        if (id != kNoExpert) ++counts[static_cast<size_t>(layer)][id];
      }
    }
  }
  return counts;
}

// [layer][expert]: its rank among the layer's experts, the most chosen first.
std::vector<std::vector<int64_t>> rank_all(const Counts& counts) {
  std::vector<std::vector<int64_t>> ranks;
  for (const std::vector<int64_t>& layer : counts) {
    const std::vector<double> scores(layer.begin(), layer.end());
    std::vector<int64_t>& rank = ranks.emplace_back(layer.size());
    int64_t next = 0;
    for (const int32_t id : rank_experts(scores)) rank[static_cast<size_t>(id)] = next++;
  }
  return ranks;
}

// For each rank r of the choosing, how many choices of the tested tokens fell on it; and for each r
// how many (token, layer) need ranks up to r for all their choices.
struct RankCounts {
  std::vector<int64_t> choices;
  std::vector<int64_t> deepest;

  double covered(int64_t top) const { return share_below(choices, top); }
  double all_kept(int64_t top) const { return share_below(deepest, top); }

 private:
  static double share_below(const std::vector<int64_t>& counts, int64_t top) {
    const auto all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const auto part = std::accumulate(counts.begin(), counts.begin() + top, int64_t{0});
    return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
  }
};

RankCounts count_ranks(const RoutingTable& table, const std::vector<std::vector<int64_t>>& ranks,
                       const TokenFilter& takes) {
  const auto experts = static_cast<size_t>(table.header.experts);
  RankCounts counts{std::vector<int64_t>(experts), std::vector<int64_t>(experts)};
  for (int64_t token = 0; token < std::ssize(table.tokens); ++token) {
    if (!takes(table.tokens[static_cast<size_t>(token)], token)) continue;
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      int64_t deepest = 0;
      for (const uint16_t id : table.row(token, layer)) {
        if (id == kNoExpert) continue;
        const int64_t rank = ranks[static_cast<size_t>(layer)][id];
        ++counts.choices[static_cast<size_t>(rank)];
        deepest = std::max(deepest, rank);
      }
      ++counts.deepest[static_cast<size_t>(deepest)];
    }
  }
  return counts;
}

// Kept shares from a thirty-second to three quarters, and what a token needs at least.
std::vector<int64_t> list_tops(int64_t experts, int64_t k) {
  std::vector<int64_t> tops;
  for (const double share : {1.0 / 32, 1.0 / 16, 1.0 / 8, 1.0 / 4, 3.0 / 8, 1.0 / 2, 3.0 / 4}) {
    const auto top = static_cast<int64_t>(std::lround(share * static_cast<double>(experts)));
    if (top >= k && (tops.empty() || tops.back() < top)) tops.push_back(top);
  }
  return tops;
}

void measure_reuse(const RoutingTable& table, std::vector<LoadSkew>& layers) {
  std::vector<int64_t> reused(layers.size());
  int64_t followers = 0;
  for (int64_t token = 1; token < std::ssize(table.tokens); ++token) {
    const RoutedToken& before = table.tokens[static_cast<size_t>(token - 1)];
    if (table.tokens[static_cast<size_t>(token)].position != before.position + 1) continue;
    ++followers;
    for (int64_t layer = 0; layer < table.layers(); ++layer) {
      const auto old = table.row(token - 1, layer);
      for (const uint16_t id : table.row(token, layer)) {
        if (id != kNoExpert && std::binary_search(old.begin(), old.end(), id)) {
          ++reused[static_cast<size_t>(layer)];
        }
      }
    }
  }
  if (followers == 0) return;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    layers[layer].reuse =
        static_cast<double>(reused[layer]) / static_cast<double>(followers * table.k());
  }
}

LoadSkew mean_of(const std::vector<LoadSkew>& layers) {
  LoadSkew mean;
  const auto count = static_cast<double>(layers.size());
  for (const LoadSkew& layer : layers) {
    mean.used += layer.used / count;
    mean.hottest_to_mean += layer.hottest_to_mean / count;
    mean.gini += layer.gini / count;
    mean.effective += layer.effective / count;
    mean.reuse += layer.reuse / count;
  }
  return mean;
}

std::vector<double> mean_load_curve(const Counts& counts) {
  std::vector<double> curve(counts.front().size());
  for (std::vector<int64_t> layer : counts) {
    std::sort(layer.begin(), layer.end(), std::greater<>());
    const auto all = static_cast<double>(std::accumulate(layer.begin(), layer.end(), int64_t{0}));
    for (size_t rank = 0; rank < layer.size() && all > 0; ++rank) {
      curve[rank] += static_cast<double>(layer[rank]) / all / static_cast<double>(counts.size());
    }
  }
  return curve;
}

void measure_coverage(const RoutingTable& table, const RoutingTable* held_out, TraceStats& stats) {
  const auto documents = static_cast<uint32_t>(table.documents.size());
  const int64_t tokens = std::ssize(table.tokens);
  // Every other document, so that each domain is on both sides.
  const bool by_document = documents > 1;
  const auto is_inside = [&](const RoutedToken& token, int64_t number) {
    return by_document ? token.document % 2 == 0 : number < tokens / 2;
  };
  const auto is_outside = [&](const RoutedToken& token, int64_t number) {
    return !is_inside(token, number);
  };
  const auto every = [](const RoutedToken&, int64_t) { return true; };
  stats.split = held_out != nullptr ? "chosen on all tokens, tested on the held-out traces"
                : by_document       ? "chosen on every other document, tested on the rest"
                                    : "chosen on the first half of the tokens, tested on the other";
  const TokenFilter chooses = held_out != nullptr ? TokenFilter(every) : TokenFilter(is_inside);
  const auto ranks = rank_all(count_choices(table, chooses));
  const RankCounts inside = count_ranks(table, ranks, chooses);
  const RankCounts outside = held_out != nullptr ? count_ranks(*held_out, ranks, every)
                                                 : count_ranks(table, ranks, is_outside);
  for (const int64_t top : list_tops(table.header.experts, table.k())) {
    stats.coverage.push_back(
        {top, inside.covered(top), outside.covered(top), outside.all_kept(top)});
  }
}

void measure_domains(const RoutingTable& table, TraceStats& stats) {
  std::map<std::string, TokenFilter> domains;
  for (const TraceDocument& document : table.documents) {
    domains.try_emplace(document.domain,
                        [&table, name = document.domain](const RoutedToken& token, int64_t) {
                          return table.documents[token.document].domain == name;
                        });
  }
  if (domains.size() < 2) return;
  stats.domain_top = std::max(table.k(), table.header.experts / 4);
  for (const auto& [chosen_on, chooses] : domains) {
    const auto ranks = rank_all(count_choices(table, chooses));
    for (const auto& [tested_on, takes] : domains) {
      stats.domains.push_back(
          {chosen_on, tested_on, count_ranks(table, ranks, takes).covered(stats.domain_top)});
    }
  }
}

}  // namespace

LoadSkew measure_skew(std::span<const int64_t> chosen) {
  LoadSkew skew;
  std::vector<int64_t> sorted(chosen.begin(), chosen.end());
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  const auto all = static_cast<double>(std::accumulate(sorted.begin(), sorted.end(), int64_t{0}));
  if (all == 0) return skew;
  double ranked = 0;  // sum of rank x load, ranks from 1 for the least
  double entropy = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] == 0) continue;
    skew.used += 1;
    const double share = static_cast<double>(sorted[i]) / all;
    ranked += static_cast<double>(i + 1) * share;
    entropy -= share * std::log2(share);
  }
  skew.hottest_to_mean = static_cast<double>(sorted.back()) / (all / count);
  skew.gini = (2 * ranked - count - 1) / count;
  skew.effective = std::exp2(entropy);
  return skew;
}

TraceStats measure_routing(const RoutingTable& table, const RoutingTable* held_out) {
  if (held_out != nullptr) {
    K3_CHECK(held_out->layers() == table.layers() &&
             held_out->header.experts == table.header.experts);
  }
  TraceStats stats;
  stats.tokens = std::ssize(table.tokens);
  stats.documents = std::ssize(table.documents);
  stats.decoded_tokens =
      std::count_if(table.tokens.begin(), table.tokens.end(),
                    [](const RoutedToken& token) { return token.phase == TracePhase::kDecode; });
  const Counts counts = count_choices(table, [](const RoutedToken&, int64_t) { return true; });
  for (const std::vector<int64_t>& layer : counts) stats.layers.push_back(measure_skew(layer));
  measure_reuse(table, stats.layers);
  stats.overall = mean_of(stats.layers);
  stats.load_curve = mean_load_curve(counts);
  measure_coverage(table, held_out, stats);
  measure_domains(table, stats);
  return stats;
}

}  // namespace k3
