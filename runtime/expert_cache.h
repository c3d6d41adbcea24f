// Routed experts on their way from the pack to the kernels, within a budget of bytes.
//
// When every expert fits, all are read and checked once, at open. Otherwise an expert is read and
// checked when it is asked for, and the one used longest ago makes room. Output bits do not depend
// on the budget: an expert's bytes are the same wherever they come from, and the expert block adds
// integers. In memory every expert lies in expert_bands; one that the pack has in
// expert_bands_compact is brought into it when it is read.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/routed_experts.h"
#include "schema/aligned_bytes.h"
#include "schema/pack_reader.h"

namespace k3 {

struct ExpertCacheStatistics {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t bytes_read = 0;
};

class ExpertCache {
 public:
  // For the banks of the first `layers` layers. Throws Error when `budget_bytes` cannot hold the
  // experts that one token asks of one layer.
  ExpertCache(const PackReader& pack, int64_t layers, int64_t budget_bytes, bool check_hashes);

  // For one layer after another: holds nothing yet.
  ExpertCache(const PackReader& pack, bool check_hashes);
  // Drops what is held; then the same for the bank of `layer` alone, which may have none.
  void hold_layer(int64_t layer, int64_t budget_bytes);
  void hold_nothing() { entries_.clear(); }

  bool all_resident() const { return all_resident_; }
  int64_t capacity_experts() const { return capacity_; }  // that can be held at the same time
  const ExpertCacheStatistics& statistics() const { return statistics_; }

  // The weights of `slots` (positions in the bank; -1 gives null). At most capacity_experts()
  // different slots. The pointers stay good until the next call. Throws Error when an expert's hash
  // does not match.
  std::span<const ExpertWeights* const> fetch(const PackBank& bank, std::span<const int32_t> slots);

 private:
  struct Entry {
    AlignedBytes extent;
    ExpertWeights weights;
    int64_t last_use = 0;
  };
  void hold(std::span<const PackBank> banks, int64_t budget_bytes);
  Entry& load(const PackBank& bank, int32_t slot, uint64_t key);
  void evict_oldest();

  const PackReader& pack_;
  bool check_hashes_;
  bool all_resident_ = false;
  int64_t capacity_ = 0;
  int64_t clock_ = 0;
  std::unordered_map<uint64_t, Entry> entries_;  // layer and slot
  AlignedBytes compact_;                         // an extent on its way
  std::vector<const ExpertWeights*> fetched_;
  ExpertCacheStatistics statistics_;
};

}  // namespace k3
