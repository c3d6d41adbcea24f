// Brings experts from the pack into slots of memory: read, checked, and laid out for the kernels.
//
// Reads go on while the caller computes; the rest is done when the caller waits, on all cores, each
// expert as it arrives. So there is no thread beside those that compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "runtime/expert_slots.h"
#include "runtime/read_queue.h"
#include "schema/pack_reader.h"

namespace k3 {

// How many experts of that many bytes are read at the same time: enough for any disk's queue,
// without keeping a wanted expert waiting behind many guessed ones.
int expert_read_depth(int64_t expert_bytes);

class ExpertReader {
 public:
  enum class Urgency : uint8_t { kWanted, kGuessed };

  // For slots 0 .. slots - 1 and extents of at most `largest_extent_bytes`. `pack` must outlive it.
  ExpertReader(const PackReader& pack, ReadPath path, bool check_hashes, int64_t slots,
               int64_t largest_extent_bytes);

  const ReadQueue& queue() const { return queue_; }

  // Takes the expert at `position` of `bank` for `dst`: page-aligned, with room for its resident
  // extent in whole pages. Not for a busy slot.
  void start(int64_t slot, const PackBank& bank, int64_t position, std::byte* dst, Urgency urgency);

  // Starts as many reads of what has been taken as fit into the queue; does not wait. Guesses are
  // read only while nothing is that is wanted: a disk shares its time among all reads in flight.
  void advance();

  bool is_busy(int64_t slot) const;  // taken and not yet done
  void make_wanted(int64_t slot);    // a guess that turned out right
  bool cancel(int64_t slot);         // a guess; false when its reading has begun
  void settle();                     // waits until no slot is busy

  // Waits until `slots` are done. Throws Error with what is wrong with the first that cannot be
  // had; it stays so until the slot is started again. Leaves guesses being read.
  void finish(std::span<const int64_t> slots);

 private:
  enum class State : uint8_t { kFree, kQueued, kReading, kArrived, kDone };
  struct Job {
    State state = State::kFree;
    Urgency urgency = Urgency::kWanted;
    const PackBank* bank = nullptr;
    int64_t position = 0;
    std::byte* dst = nullptr;
    int64_t staging = -1;  // of staging_: where a compact extent waits to be expanded
    std::string fault;     // of the reading, then of the check; empty: none
    const PackExpert& expert() const { return bank->experts[static_cast<size_t>(position)]; }
  };

  Job& job(int64_t slot) { return jobs_[static_cast<size_t>(slot)]; }
  bool take_arrivals(bool wait);
  void check_arrivals();
  std::string fault_of(const Job& job) const;
  void wait_for(const Job& job);

  const PackReader& pack_;
  bool check_hashes_;
  ExpertSlots staging_;
  ReadQueue queue_;  // ends before the memory it reads to
  std::vector<int64_t> unused_staging_;
  std::vector<Job> jobs_;  // by slot
  int wanted_in_flight_ = 0;
  std::deque<int64_t> wanted_;
  std::deque<int64_t> guessed_;
  std::vector<int64_t> arrived_;
};

}  // namespace k3
