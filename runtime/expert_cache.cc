#include "runtime/expert_cache.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "schema/error.h"
#include "schema/memory_need.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

std::span<const PackBank> banks_of(const PackReader& pack, int64_t layers) {
  const std::vector<PackBank>& all = pack.index().content.banks;  // by ascending layer
  const auto end = std::find_if(all.begin(), all.end(),
                                [layers](const PackBank& bank) { return bank.layer >= layers; });
  return {all.begin(), end};
}

// Those that may be asked for. Cold experts lie behind the others.
std::span<const PackExpert> askable(const PackBank& bank, bool with_cold) {
  return with_cold ? std::span<const PackExpert>(bank.experts) : hot_experts(bank);
}

int64_t expert_count(std::span<const PackBank> banks, bool with_cold) {
  int64_t count = 0;
  for (const PackBank& bank : banks) count += std::ssize(askable(bank, with_cold));
  return count;
}

// Slots are alike, so that any expert may follow any other. In K3 all experts have one size.
int64_t largest_slot_bytes(const PackReader& pack, std::span<const PackBank> banks) {
  int64_t largest = 0;
  for (const PackBank& bank : banks) {
    largest = std::max(largest, expert_slot_bytes(pack.config(), bank));
  }
  return largest;
}

int64_t largest_extent(const PackReader& pack, std::span<const PackBank> banks) {
  int64_t largest = kExtentAlignment;
  for (const PackBank& bank : banks) {
    largest = std::max(largest, bank_bands(pack.config(), bank).extent_bytes());
  }
  return largest;
}

bool holds_all(const ExpertCacheOptions& options, std::span<const PackBank> banks,
               int64_t slot_bytes) {
  const int64_t count = expert_count(banks, options.with_cold);
  return count == 0 || count <= options.budget_bytes / slot_bytes;
}

SlotTable make_table(const ExpertCacheOptions& options, std::span<const PackBank> banks,
                     int64_t slot_bytes) {
  std::vector<int64_t> bank_experts;
  for (const PackBank& bank : banks) {
    bank_experts.push_back(std::ssize(askable(bank, options.with_cold)));
  }
  const bool all = holds_all(options, banks, slot_bytes);
  return {options.policy, bank_experts,
          all ? expert_count(banks, options.with_cold) : options.budget_bytes / slot_bytes};
}

}  // namespace

ExpertCacheStatistics& ExpertCacheStatistics::operator+=(const ExpertCacheStatistics& other) {
  hits += other.hits;
  prefetch_hits += other.prefetch_hits;
  misses += other.misses;
  missing_visits += other.missing_visits;
  missed_bytes += other.missed_bytes;
  prefetched_bytes += other.prefetched_bytes;
  bytes_read += other.bytes_read;
  stall_seconds += other.stall_seconds;
  return *this;
}

ExpertCache::ExpertCache(const PackReader& pack, int64_t layers, const ExpertCacheOptions& options)
    : ExpertCache(pack, banks_of(pack, layers), options) {}

ExpertCache::ExpertCache(const PackReader& pack, std::span<const PackBank> banks,
                         const ExpertCacheOptions& options)
    : pack_(pack),
      banks_(banks),
      with_cold_(options.with_cold),
      slot_bytes_(largest_slot_bytes(pack, banks_)),
      largest_extent_bytes_(largest_extent(pack, banks_)),
      all_resident_(holds_all(options, banks_, slot_bytes_)),
      table_(make_table(options, banks_, slot_bytes_)),
      states_(static_cast<size_t>(table_.slots())),
      slots_(table_.slots(), slot_bytes_),
      // What is read once is read through the page cache, where the next start finds it.
      reader_(pack, all_resident_ ? ReadPath::kBuffered : options.reads, options.check_hashes,
              table_.slots(), largest_extent_bytes_) {
  const int64_t k = pack.config().experts_per_token;
  for (const PackBank& bank : banks_) {
    if (room(bank) >= std::min(k, std::ssize(experts_of(bank)))) continue;
    const bool shares = options.policy == EvictionPolicy::kLruPerLayer;
    throw Error(pack.path(), ": the expert cache may take ", options.budget_bytes, " bytes, ",
                shares ? std::to_string(banks_.size()) + " layers'" : "one layer's", ' ', k,
                " experts need ", (shares ? std::ssize(banks_) : 1) * k * slot_bytes_);
  }
  if (all_resident_) read_all();
}

std::span<const PackExpert> ExpertCache::experts_of(const PackBank& bank) const {
  return askable(bank, with_cold_);
}

int64_t ExpertCache::index_of(const PackBank& bank) const {
  return &bank - banks_.data();
}

int64_t ExpertCache::room(const PackBank& bank) const {
  return table_.share(index_of(bank));
}

void ExpertCache::read_all() {
  for (const PackBank& bank : banks_) {
    const int64_t experts = std::ssize(experts_of(bank));
    for (int64_t position = 0; position < experts; ++position) {
      read_into_slot(index_of(bank), position, ExpertReader::Urgency::kWanted);
    }
  }
  std::vector<int64_t> all(states_.size());
  std::iota(all.begin(), all.end(), 0);
  reader_.finish(all);
}

bool ExpertCache::may_evict(int64_t slot) {
  const Slot& state = states_[static_cast<size_t>(slot)];
  return state.pins == 0 && !state.guessed && !reader_.is_busy(slot);
}

// The slot to which the expert is being read, or -1 when every slot is taken by something better.
int64_t ExpertCache::read_into_slot(int64_t bank, int64_t expert, ExpertReader::Urgency urgency) {
  const int64_t slot =
      table_.place(bank, expert, [this](int64_t candidate) { return may_evict(candidate); });
  if (slot < 0) return slot;
  const PackBank& from = banks_[static_cast<size_t>(bank)];
  const PackExpert& source = from.experts[static_cast<size_t>(expert)];
  states_[static_cast<size_t>(slot)] = {.weights = {.extent = slots_.at(slot),
                                                    .least_exponent = source.least_exponent,
                                                    .name = from.layer << 32 | expert},
                                        .bank = bank,
                                        .extent_bytes = source.extent.length_bytes};
  statistics_.bytes_read += source.extent.length_bytes;
  reader_.start(slot, from, expert, slots_.at(slot), urgency);
  return slot;
}

void ExpertCache::request(const PackBank& bank, std::span<const int32_t> slots) {
  const int64_t index = index_of(bank);
  std::vector<int32_t> distinct(slots.begin(), slots.end());
  std::erase_if(distinct, [](int32_t position) { return position < 0; });
  const auto source_id = [&](int32_t position) {
    return bank.experts[static_cast<size_t>(position)].source_id;
  };
  std::sort(distinct.begin(), distinct.end(),
            [&](int32_t a, int32_t b) { return source_id(a) < source_id(b); });
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());

  table_.visit(index);
  const int64_t misses = statistics_.misses;
  for (const int32_t position : distinct) {  // what is here stays
    const int64_t slot = table_.find(index, position);
    if (slot >= 0) ++states_[static_cast<size_t>(slot)].pins;
  }
  for (const int32_t position : distinct) ask_for(index, position);
  if (statistics_.misses > misses) ++statistics_.missing_visits;
  drop_wrong_guesses(index);
  reader_.advance();

  Request request;
  for (const int32_t position : slots) {
    request.push_back(position < 0 ? -1 : table_.find(index, position));
    K3_CHECK(position < 0 || request.back() >= 0);  // room() was not exceeded
  }
  requests_.push_back(std::move(request));
}

// One expert of a request: counted, and read and pinned if it is not here.
void ExpertCache::ask_for(int64_t bank, int64_t expert) {
  if (!all_resident_) table_.use(bank, expert);
  int64_t slot = table_.find(bank, expert);
  if (slot < 0) {
    slot = read_into_slot(bank, expert, ExpertReader::Urgency::kWanted);
    if (slot < 0) {  // guesses hold what is left
      reader_.settle();
      for (const int64_t guess : guesses_) states_[static_cast<size_t>(guess)].guessed = false;
      guesses_.clear();
      slot = read_into_slot(bank, expert, ExpertReader::Urgency::kWanted);
    }
    K3_CHECK(slot >= 0);
    ++states_[static_cast<size_t>(slot)].pins;
    ++statistics_.misses;
    statistics_.missed_bytes += states_[static_cast<size_t>(slot)].extent_bytes;
  } else if (states_[static_cast<size_t>(slot)].guessed) {
    states_[static_cast<size_t>(slot)].guessed = false;
    std::erase(guesses_, slot);
    reader_.make_wanted(slot);
    ++statistics_.prefetch_hits;
  } else {
    ++statistics_.hits;
  }
}

void ExpertCache::drop_wrong_guesses(int64_t bank) {
  std::erase_if(guesses_, [&](int64_t slot) {
    Slot& state = states_[static_cast<size_t>(slot)];
    if (state.bank != bank) return false;
    state.guessed = false;
    if (reader_.cancel(slot)) {
      const int64_t bytes = state.extent_bytes;
      statistics_.bytes_read -= bytes;
      statistics_.prefetched_bytes -= bytes;
      table_.remove(slot);
    } else {
      table_.put_first_to_go(slot);
    }
    return true;
  });
}

std::span<const ExpertWeights* const> ExpertCache::wait() {
  K3_CHECK(!requests_.empty());
  held_.push_back(std::move(requests_.front()));
  requests_.pop_front();
  Request slots = held_.back();
  std::erase(slots, -1);
  if (!all_resident_) {
    const Stopwatch watch;
    reader_.finish(slots);
    statistics_.stall_seconds += watch.seconds();
  }
  fetched_.clear();
  for (const int64_t slot : held_.back()) {
    fetched_.push_back(slot < 0 ? nullptr : &states_[static_cast<size_t>(slot)].weights);
  }
  return fetched_;
}

void ExpertCache::release() {
  for (Request& request : held_) {
    std::sort(request.begin(), request.end());
    request.erase(std::unique(request.begin(), request.end()), request.end());
    for (const int64_t slot : request) {
      if (slot >= 0) --states_[static_cast<size_t>(slot)].pins;
    }
  }
  held_.clear();
}

std::span<const ExpertWeights* const> ExpertCache::fetch(const PackBank& bank,
                                                         std::span<const int32_t> slots) {
  release();
  request(bank, slots);
  return wait();
}

void ExpertCache::prefetch(const PackBank& bank, std::span<const int32_t> slots) {
  const int64_t index = index_of(bank);
  for (const int32_t position : slots) {
    if (position < 0 || table_.find(index, position) >= 0) continue;
    const int64_t slot = read_into_slot(index, position, ExpertReader::Urgency::kGuessed);
    if (slot < 0) break;
    states_[static_cast<size_t>(slot)].guessed = true;
    guesses_.push_back(slot);
    statistics_.prefetched_bytes += states_[static_cast<size_t>(slot)].extent_bytes;
  }
  reader_.advance();
}

}  // namespace k3
