#include "runtime/expert_cache.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "schema/compact_scales.h"
#include "schema/error.h"

namespace k3 {
namespace {

uint64_t key_of(int64_t layer, int32_t slot) {
  return static_cast<uint64_t>(layer) << 32 | static_cast<uint32_t>(slot);
}

}  // namespace

ExpertCache::ExpertCache(const PackReader& pack, int64_t layers, int64_t budget_bytes,
                         bool check_hashes)
    : pack_(pack), check_hashes_(check_hashes) {
  const std::vector<PackBank>& all = pack.index().content.banks;  // by ascending layer
  const auto end = std::find_if(all.begin(), all.end(),
                                [layers](const PackBank& bank) { return bank.layer >= layers; });
  hold({all.begin(), end}, budget_bytes);
}

ExpertCache::ExpertCache(const PackReader& pack, bool check_hashes)
    : pack_(pack), check_hashes_(check_hashes) {}

void ExpertCache::hold_layer(int64_t layer, int64_t budget_bytes) {
  entries_.clear();
  const PackBank* bank = pack_.bank(layer);
  hold({bank, bank == nullptr ? size_t{0} : size_t{1}}, budget_bytes);
}

void ExpertCache::hold(std::span<const PackBank> banks, int64_t budget_bytes) {
  int64_t total_bytes = 0;
  int64_t largest_bytes = 0;
  int64_t count = 0;
  for (const PackBank& bank : banks) {
    const int64_t expert_bytes = resident_bands(pack_.config(), bank).extent_bytes();
    total_bytes += std::ssize(bank.experts) * expert_bytes;
    largest_bytes = std::max(largest_bytes, expert_bytes);
    count += std::ssize(bank.experts);
  }
  const int64_t needed_bytes = largest_bytes * pack_.config().experts_per_token;
  if (budget_bytes < std::min(needed_bytes, total_bytes)) {
    throw Error(pack_.path(), ": the expert cache may take ", budget_bytes, " bytes, one layer's ",
                pack_.config().experts_per_token, " experts need ", needed_bytes);
  }
  all_resident_ = total_bytes <= budget_bytes;
  capacity_ = all_resident_ ? count : budget_bytes / largest_bytes;
  if (!all_resident_) return;
  for (const PackBank& bank : banks) {
    for (size_t slot = 0; slot < bank.experts.size(); ++slot) {
      const auto position = static_cast<int32_t>(slot);
      load(bank, position, key_of(bank.layer, position));
    }
  }
}

ExpertCache::Entry& ExpertCache::load(const PackBank& bank, int32_t slot, uint64_t key) {
  const PackExpert& expert = bank.experts[static_cast<size_t>(slot)];
  const ExpertBands place = resident_bands(pack_.config(), bank);
  Entry entry{.extent = AlignedBytes(place.extent_bytes()), .weights = {}};
  const std::string name =
      "layer " + std::to_string(bank.layer) + " expert " + std::to_string(expert.source_id);
  if (bank.layout == Layout::kExpertBandsCompact) {
    if (compact_.size_bytes() != expert.extent.length_bytes) {
      compact_ = AlignedBytes(expert.extent.length_bytes);
    }
    pack_.read(expert.extent, name, compact_.span(), check_hashes_);
    expand_scales(place, expert.least_exponent, compact_.span(), entry.extent.span());
  } else {
    pack_.read(expert.extent, name, entry.extent.span(), check_hashes_);
  }
  entry.weights = {.extent = entry.extent.data(),
                   .least_exponent = expert.least_exponent,
                   .name = static_cast<int64_t>(key)};
  statistics_.bytes_read += expert.extent.length_bytes;
  return entries_.insert_or_assign(key, std::move(entry)).first->second;
}

// Entries that the running fetch has asked for carry its clock and are never the oldest: capacity_
// covers them.
void ExpertCache::evict_oldest() {
  const auto oldest = std::min_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  K3_CHECK(oldest != entries_.end() && oldest->second.last_use < clock_);
  entries_.erase(oldest);
}

std::span<const ExpertWeights* const> ExpertCache::fetch(const PackBank& bank,
                                                         std::span<const int32_t> slots) {
  ++clock_;
  for (int32_t slot : slots) {  // first protect what is here, then make room for what is not
    const auto entry = slot < 0 ? entries_.end() : entries_.find(key_of(bank.layer, slot));
    if (entry != entries_.end()) entry->second.last_use = clock_;
  }
  fetched_.clear();
  for (int32_t slot : slots) {
    if (slot < 0) {
      fetched_.push_back(nullptr);
      continue;
    }
    const uint64_t key = key_of(bank.layer, slot);
    auto entry = entries_.find(key);
    if (entry == entries_.end()) {
      ++statistics_.misses;
      if (static_cast<int64_t>(entries_.size()) >= capacity_) evict_oldest();
      load(bank, slot, key).last_use = clock_;
      entry = entries_.find(key);
    } else {
      ++statistics_.hits;
    }
    fetched_.push_back(&entry->second.weights);
  }
  return fetched_;
}

}  // namespace k3
