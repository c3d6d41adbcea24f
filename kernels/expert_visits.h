// Which tokens of a batch visit which expert, so that an expert's weights are read once for all of
// them.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/routed_experts.h"

namespace k3 {

struct ExpertVisits {
  const ExpertWeights* expert = nullptr;
  std::vector<int64_t> slots;  // ascending indices into `experts`: t * k + j
};

// One entry per distinct expert, in the order of their first slots; null experts have none.
inline std::vector<ExpertVisits> group_visits(std::span<const ExpertWeights* const> experts) {
  std::vector<ExpertVisits> groups;
  std::unordered_map<const ExpertWeights*, size_t> group_of;
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    if (experts[slot] == nullptr) continue;
    const auto [entry, is_new] = group_of.try_emplace(experts[slot], groups.size());
    if (is_new) groups.push_back({.expert = experts[slot], .slots = {}});
    groups[entry->second].slots.push_back(static_cast<int64_t>(slot));
  }
  return groups;
}

}  // namespace k3
