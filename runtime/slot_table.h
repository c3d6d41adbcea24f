// Which expert lies in which slot of the cache, and which has to go next. No bytes are moved here,
// so that a policy can be replayed over recorded routing and gives the counts of the real cache.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace k3 {

enum class EvictionPolicy : uint8_t {
  kLru,          // the one used longest ago
  kLruPerLayer,  // the same within equal shares of the slots, one for each layer
  kLfuDecayed    // the one used least, where a use counts half after kUseHalfLife visits of a layer
};

inline constexpr std::array<std::string_view, 3> kEvictionPolicyNames = {"lru", "lru-per-layer",
                                                                         "lfu-decayed"};

// Replayed over nano's held-out texts, 64 hits most among 8 to 4096, by little.
inline constexpr double kUseHalfLife = 64;

class SlotTable {
 public:
  // For banks of that many experts, under numbers 0, 1, ... each.
  SlotTable(EvictionPolicy policy, std::span<const int64_t> bank_experts, int64_t slots);

  int64_t slots() const { return static_cast<int64_t>(residents_.size()); }
  int64_t share(int64_t bank) const;  // slots that experts of this bank may take

  // Begins a visit of a bank, the unit of time in which uses fade.
  void visit(int64_t bank) { ++visits_[static_cast<size_t>(bank)]; }

  // The slot of an expert, -1 when it has none.
  int64_t find(int64_t bank, int64_t expert) const { return state(bank, expert).slot; }

  // Counts a use, now, of an expert that has a slot or is about to get one.
  void use(int64_t bank, int64_t expert);

  // Gives an expert without a slot an unused one, or else that of the first in the order of the
  // policy for which may_evict(slot) holds. -1 when there is none.
  int64_t place(int64_t bank, int64_t expert, const std::function<bool(int64_t)>& may_evict);

  void put_first_to_go(int64_t slot);  // until its next use
  void remove(int64_t slot);           // its expert; the slot is unused then

 private:
  struct ExpertState {
    int64_t slot = -1;
    int64_t last_use = 0;          // by a clock of all uses
    double log2_uses = -HUGE_VAL;  // see use()
    bool goes_first = false;
  };
  struct Resident {
    int64_t bank = -1;
    int64_t expert = -1;
  };
  using Rank = std::tuple<double, int64_t, int64_t>;  // uses, last use, slot: the least goes first

  // The slots that compete with each other: all, or those of one layer.
  struct Pool {
    std::set<Rank> ranks;  // of its residents
    std::vector<int64_t> unused;
    int64_t slots = 0;
  };

  const ExpertState& state(int64_t bank, int64_t expert) const;
  ExpertState& state(int64_t bank, int64_t expert);
  Pool& pool_of(int64_t bank);
  Rank rank(const ExpertState& state) const;

  EvictionPolicy policy_;
  std::vector<std::vector<ExpertState>> experts_;  // by bank
  std::vector<Resident> residents_;                // by slot
  std::vector<Pool> pools_;                        // one, or one for each bank
  std::vector<int64_t> visits_;                    // by bank
  int64_t clock_ = 0;
};

}  // namespace k3
