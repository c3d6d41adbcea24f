#include "runtime/slot_table.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "schema/error.h"

namespace k3 {

SlotTable::SlotTable(EvictionPolicy policy, std::span<const int64_t> bank_experts, int64_t slots)
    : policy_(policy),
      residents_(static_cast<size_t>(slots)),
      pools_(policy == EvictionPolicy::kLruPerLayer ? bank_experts.size() : 1),
      visits_(bank_experts.size()) {
  for (const int64_t experts : bank_experts) experts_.emplace_back(static_cast<size_t>(experts));
  // Slots go round the pools until all have what they can use.
  std::vector<int64_t> wanted(bank_experts.begin(), bank_experts.end());
  if (pools_.size() == 1) wanted = {std::reduce(wanted.begin(), wanted.end())};
  int64_t given = 0;
  for (int64_t before = -1; given < slots && given != before;) {
    before = given;
    for (size_t i = 0; i < pools_.size() && given < slots; ++i) {
      if (pools_[i].slots < wanted[i]) {
        pools_[i].unused.push_back(given++);
        ++pools_[i].slots;
      }
    }
  }
  for (Pool& pool : pools_) std::reverse(pool.unused.begin(), pool.unused.end());
}

const SlotTable::ExpertState& SlotTable::state(int64_t bank, int64_t expert) const {
  const std::vector<ExpertState>& experts = experts_[static_cast<size_t>(bank)];
  K3_CHECK(expert >= 0 && expert < std::ssize(experts));
  return experts[static_cast<size_t>(expert)];
}

SlotTable::ExpertState& SlotTable::state(int64_t bank, int64_t expert) {
  return const_cast<ExpertState&>(std::as_const(*this).state(bank, expert));
}

SlotTable::Pool& SlotTable::pool_of(int64_t bank) {
  return pools_[pools_.size() == 1 ? 0 : static_cast<size_t>(bank)];
}

int64_t SlotTable::share(int64_t bank) const {
  return pools_[pools_.size() == 1 ? 0 : static_cast<size_t>(bank)].slots;
}

SlotTable::Rank SlotTable::rank(const ExpertState& state) const {
  if (state.goes_first) return {-HUGE_VAL, 0, state.slot};
  return {policy_ == EvictionPolicy::kLfuDecayed ? state.log2_uses : 0, state.last_use, state.slot};
}

// Instead of letting all counts fade, a use at visit v counts 2^(v / half-life) for good: the same
// order, and nothing to touch but the expert used. The sum of such counts is kept as its logarithm,
// which does not overflow.
void SlotTable::use(int64_t bank, int64_t expert) {
  ExpertState& at = state(bank, expert);
  std::set<Rank>& ranks = pool_of(bank).ranks;
  if (at.slot >= 0) ranks.erase(rank(at));
  const double fresh = static_cast<double>(visits_[static_cast<size_t>(bank)]) / kUseHalfLife;
  at.log2_uses = fresh + std::log2(1 + std::exp2(at.log2_uses - fresh));
  at.last_use = ++clock_;
  at.goes_first = false;
  if (at.slot >= 0) ranks.insert(rank(at));
}

int64_t SlotTable::place(int64_t bank, int64_t expert,
                         const std::function<bool(int64_t)>& may_evict) {
  ExpertState& at = state(bank, expert);
  K3_CHECK(at.slot < 0);
  Pool& pool = pool_of(bank);
  if (pool.unused.empty()) {
    const auto victim = std::find_if(pool.ranks.begin(), pool.ranks.end(), [&](const Rank& rank) {
      return may_evict(std::get<2>(rank));
    });
    if (victim == pool.ranks.end()) return -1;
    remove(std::get<2>(*victim));
  }
  at.slot = pool.unused.back();
  pool.unused.pop_back();
  residents_[static_cast<size_t>(at.slot)] = {.bank = bank, .expert = expert};
  pool.ranks.insert(rank(at));
  return at.slot;
}

void SlotTable::put_first_to_go(int64_t slot) {
  const Resident& resident = residents_[static_cast<size_t>(slot)];
  ExpertState& at = state(resident.bank, resident.expert);
  std::set<Rank>& ranks = pool_of(resident.bank).ranks;
  ranks.erase(rank(at));
  at.goes_first = true;
  ranks.insert(rank(at));
}

void SlotTable::remove(int64_t slot) {
  Resident& resident = residents_[static_cast<size_t>(slot)];
  ExpertState& at = state(resident.bank, resident.expert);
  Pool& pool = pool_of(resident.bank);
  pool.ranks.erase(rank(at));
  at.slot = -1;
  at.goes_first = false;
  resident = {};
  pool.unused.push_back(slot);
}

}  // namespace k3
