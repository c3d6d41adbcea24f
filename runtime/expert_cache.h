// Routed experts on their way from the pack to the kernels, within a budget of bytes.
//
// When every expert fits, all are read and checked once, at open. Otherwise an expert is read and
// checked when it is asked for, and by the eviction policy others make room. Output bits do not
// depend on the budget, on the policy or on what was guessed: an expert's bytes are the same
// wherever they come from, and the expert block adds integers. In memory every expert lies in
// expert_bands; one that the pack has in expert_bands_compact is brought into it when it is read.
//
// A layer's experts are asked for with request(), as soon as its router has chosen them, and
// received with wait(); what is computed in between costs no time while the disk is the slower of
// the two.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "kernels/routed_experts.h"
#include "runtime/expert_reader.h"
#include "runtime/expert_slots.h"
#include "runtime/slot_table.h"
#include "schema/pack_reader.h"

namespace k3 {

struct ExpertCacheOptions {
  int64_t budget_bytes = 0;
  EvictionPolicy policy = EvictionPolicy::kLfuDecayed;
  ReadPath reads = ReadPath::kDirect;  // of a cache that does not hold all
  bool check_hashes = true;
  bool with_cold = false;  // experts of the cold section may be asked for too
};

// Counted per visit of a layer: by one token, or by a group of tokens that pass together and ask
// for an expert once.
struct ExpertCacheStatistics {
  int64_t hits = 0;           // asked for and there, because it had been asked for before
  int64_t prefetch_hits = 0;  // asked for and there or on its way, because it had been guessed
  int64_t misses = 0;
  int64_t missing_visits = 0;    // visits of a layer that missed one or more
  int64_t missed_bytes = 0;      // read from the pack for misses
  int64_t prefetched_bytes = 0;  // for guesses, right and wrong
  int64_t bytes_read = 0;        // both, and what was read at open
  double stall_seconds = 0;      // in wait()

  ExpertCacheStatistics& operator+=(const ExpertCacheStatistics& other);
};

class ExpertCache {
 public:
  // For the banks of the first `layers` layers. Throws Error when the budget cannot hold the
  // experts that one token asks of one layer.
  ExpertCache(const PackReader& pack, int64_t layers, const ExpertCacheOptions& options);
  // For these banks of the pack alone, for programs that go through the model layer by layer.
  ExpertCache(const PackReader& pack, std::span<const PackBank> banks,
              const ExpertCacheOptions& options);

  bool all_resident() const { return all_resident_; }
  int64_t capacity_experts() const { return table_.slots(); }
  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t largest_extent_bytes() const { return largest_extent_bytes_; }
  std::span<std::byte> memory() const { return slots_.memory(); }  // where all experts lie
  const ReadQueue& reads() const { return reader_.queue(); }
  const ExpertCacheStatistics& statistics() const { return statistics_; }
  void reset_statistics() { statistics_ = {}; }

  // How many different experts of the bank can be held at the same time.
  int64_t room(const PackBank& bank) const;

  // Asks for the experts `slots` of the bank: positions in it, repeated as they may be; -1 stands
  // for none. Those that are here stay; the others are read from now on, to the places of experts
  // not asked for. Each counts as used once, by ascending source id. Of the experts requested since
  // the last release(), no more may differ than room() says.
  void request(const PackBank& bank, std::span<const int32_t> slots);

  // The weights that the oldest request asked for, null for -1, once they are all here. Good until
  // release(). Throws Error when one cannot be read or its hash does not match.
  std::span<const ExpertWeights* const> wait();

  // Lets go of what wait() has returned so far.
  void release();

  // All three: the weights are good until the next call.
  std::span<const ExpertWeights* const> fetch(const PackBank& bank, std::span<const int32_t> slots);

  // Reads experts that the next request() of the bank is likely to ask for, the most likely first,
  // when nothing else is to be read, as far as there is room. Those that it then does not ask for
  // are the first to go.
  void prefetch(const PackBank& bank, std::span<const int32_t> slots);

 private:
  struct Slot {
    ExpertWeights weights;
    int64_t bank = -1;
    int64_t extent_bytes = 0;
    int pins = 0;          // by requests that have not been released
    bool guessed = false;  // and not asked for yet
  };
  using Request = std::vector<int64_t>;  // slots of the cache in the order asked for, -1: none

  std::span<const PackExpert> experts_of(const PackBank& bank) const;
  int64_t index_of(const PackBank& bank) const;
  bool may_evict(int64_t slot);
  int64_t read_into_slot(int64_t bank, int64_t expert, ExpertReader::Urgency urgency);
  void read_all();
  void ask_for(int64_t bank, int64_t expert);
  void drop_wrong_guesses(int64_t bank);

  const PackReader& pack_;
  std::span<const PackBank> banks_;
  bool with_cold_;
  int64_t slot_bytes_ = 0;
  int64_t largest_extent_bytes_ = 0;
  bool all_resident_ = false;
  SlotTable table_;
  std::vector<Slot> states_;  // by slot
  ExpertSlots slots_;
  ExpertReader reader_;  // ends before the memory it reads to
  std::deque<Request> requests_;
  std::vector<Request> held_;
  std::vector<int64_t> guesses_;  // slots
  std::vector<const ExpertWeights*> fetched_;
  ExpertCacheStatistics statistics_;
};

}  // namespace k3
