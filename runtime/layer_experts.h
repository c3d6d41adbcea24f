// The experts of one layer at a time, for programs that go through the model layer by layer.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/expert_cache.h"

namespace k3 {

class LayerExperts {
 public:
  // Holds nothing yet.
  LayerExperts(const PackReader& pack, bool check_hashes)
      : pack_(pack), check_hashes_(check_hashes) {
    hold({}, 0);
  }

  // The cache, always at the same place: a Forward may keep a reference to it.
  ExpertCache& cache() { return *cache_; }
  int64_t bytes_read() const { return bytes_read_ + cache_->statistics().bytes_read; }

  // Drops what is held; then those of the bank of `layer`, which may have none.
  void hold_layer(int64_t layer, int64_t budget_bytes) {
    const PackBank* bank = pack_.bank(layer);
    hold({bank, bank == nullptr ? size_t{0} : size_t{1}}, budget_bytes);
  }
  void hold_nothing() { hold({}, 0); }

 private:
  void hold(std::span<const PackBank> banks, int64_t budget_bytes) {
    if (cache_) bytes_read_ += cache_->statistics().bytes_read;
    cache_.emplace(pack_, banks,
                   ExpertCacheOptions{.budget_bytes = budget_bytes, .check_hashes = check_hashes_});
  }

  const PackReader& pack_;
  bool check_hashes_;
  std::optional<ExpertCache> cache_;
  int64_t bytes_read_ = 0;  // by caches before this one
};

}  // namespace k3
