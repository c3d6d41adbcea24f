#include "passes/expert_scores.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/trace_reader.h"

namespace k3 {
namespace {

constexpr std::array<std::string_view, 5> kScoreNames = {"reap", "frequency", "gate", "random",
                                                         "total"};

void check_same_model(const TraceHeader& first, const TraceHeader& next, const std::string& path) {
  if (next.router_xxh3 != first.router_xxh3 || next.experts != first.experts ||
      next.experts_per_token != first.experts_per_token) {
    throw Error(path, ": is of the model with router hash ", hex_digits(next.router_xxh3), " and ",
                next.experts, " experts, the traces before it of ", hex_digits(first.router_xxh3),
                " and ", first.experts);
  }
  if (next.layers != first.layers) {
    throw Error(path, ": saw ", next.layers.size(), " layers, the traces before it ",
                first.layers.size(), " or others");
  }
}

void add_block(const TraceHeader& header, const TraceBlock& block,
               std::vector<LayerRouting>& layers) {
  const auto tokens = std::ssize(block.tokens);
  const auto k = static_cast<size_t>(header.experts_per_token);
  for (int64_t layer = 0; layer < block.layers; ++layer) {
    LayerRouting& sums = layers[static_cast<size_t>(block.first_layer + layer)];
    sums.tokens += tokens;
    const size_t begin = trace_row(block, layer, 0, header.experts_per_token);
    for (size_t i = begin; i < begin + static_cast<size_t>(tokens) * k; ++i) {
      if (block.ids[i] == kNoExpert) continue;
      const auto id = static_cast<size_t>(block.ids[i]);
      ++sums.chosen[id];
      if (!header.has_weights) continue;
      const auto weight = static_cast<double>(block.weights[i]);
      sums.weights[id] += weight;
      if (!header.has_norms) continue;
      const double contribution = weight * static_cast<double>(block.norms[i]);
      sums.contributions[id] += contribution;
      sums.squared[id] += contribution * contribution;
    }
  }
}

// A number in [0, 1) that depends on layer and expert alone.
double draw(int64_t layer, int64_t id) {
  const std::array<int64_t, 2> place = {layer, id};
  return static_cast<double>(xxh3(std::as_bytes(std::span(place))) >> 11) * 0x1p-53;
}

}  // namespace

std::string_view expert_score_name(ExpertScore score) {
  return kScoreNames[static_cast<size_t>(score)];
}

std::optional<ExpertScore> parse_expert_score(std::string_view name) {
  const auto found = std::find(kScoreNames.begin(), kScoreNames.end(), name);
  if (found == kScoreNames.end()) return std::nullopt;
  return static_cast<ExpertScore>(found - kScoreNames.begin());
}

RoutingSums sum_routing(std::span<const std::string> paths) {
  K3_CHECK(!paths.empty());
  RoutingSums sums;
  for (const std::string& path : paths) {
    TraceReader reader(path);
    if (sums.traces.empty()) {
      sums.header = reader.header();
      const auto experts = static_cast<size_t>(sums.header.experts);
      sums.layers.resize(sums.header.layers.size());
      for (LayerRouting& layer : sums.layers) {
        layer.chosen.resize(experts);
        layer.weights.resize(experts);
        layer.contributions.resize(experts);
        layer.squared.resize(experts);
      }
    } else {
      check_same_model(sums.header, reader.header(), path);
      sums.header.has_weights = sums.header.has_weights && reader.header().has_weights;
      sums.header.has_norms = sums.header.has_norms && reader.header().has_norms;
      sums.header.masked = sums.header.masked || reader.header().masked;
    }
    for (TraceBlock block; reader.next(block);) add_block(reader.header(), block, sums.layers);
    if (reader.is_cut()) sums.cut.push_back(path);
    sums.traces.push_back({reader.digest(), reader.tokens()});
  }
  return sums;
}

std::vector<double> expert_scores(const LayerRouting& routing, ExpertScore score, int64_t layer) {
  std::vector<double> scores(routing.chosen.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    const auto chosen = static_cast<double>(routing.chosen[id]);
    switch (score) {
      case ExpertScore::kReap:
        scores[id] = chosen > 0 ? routing.contributions[id] / chosen : 0;
        break;
      case ExpertScore::kFrequency:
        scores[id] = chosen;
        break;
      case ExpertScore::kGate:
        scores[id] = routing.weights[id];
        break;
      case ExpertScore::kTotal:
        scores[id] = routing.contributions[id];
        break;
      case ExpertScore::kRandom:
        scores[id] = draw(layer, static_cast<int64_t>(id));
        break;
    }
  }
  return scores;
}

std::vector<int32_t> rank_experts(std::span<const double> scores) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace k3
