// Brings experts from the pack into slots of memory while the caller computes: read, checked, and
// laid out for the kernels.
//
// A thread of its own keeps the disk's queue full, wanted experts before guessed ones, and checks
// what has arrived while more is under way. A caller who has to wait helps with the checking, which
// for one thread would be as slow as a fast disk is.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
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
  ~ExpertReader();  // waits for reads in flight, and drops the others
  ExpertReader(const ExpertReader&) = delete;
  ExpertReader& operator=(const ExpertReader&) = delete;

  const ReadQueue& queue() const { return queue_; }

  // Starts to bring the expert at `position` of `bank` to `dst`: page-aligned, with room for its
  // resident extent in whole pages. Not for a busy slot.
  void start(int64_t slot, const PackBank& bank, int64_t position, std::byte* dst, Urgency urgency);

  bool is_busy(int64_t slot);      // started and not yet done
  void make_wanted(int64_t slot);  // a guess that turned out right
  bool cancel(int64_t slot);       // false when its reading has begun
  void settle();                   // waits until no slot is busy

  // Waits until `slots` are done. Throws Error with what is wrong with the first that cannot be
  // had; it stays so until the slot is started again.
  void finish(std::span<const int64_t> slots);

 private:
  enum class State : uint8_t { kFree, kQueued, kReading, kArrived, kDone };
  struct Job {
    State state = State::kFree;
    const PackBank* bank = nullptr;
    int64_t position = 0;
    std::byte* dst = nullptr;
    int64_t staging = -1;  // of staging_: where a compact extent waits to be expanded
    std::string fault;     // of the reading, then of the check; empty: none
    const PackExpert& expert() const { return bank->experts[static_cast<size_t>(position)]; }
  };
  using Lock = std::unique_lock<std::mutex>;

  void serve();
  void feed_queue();
  void wake_if_asleep();
  bool check_one(Lock& lock);
  std::string fault_of(const Job& job) const;
  void wait_for(Lock& lock, const Job& job);

  const PackReader& pack_;
  bool check_hashes_;
  ExpertSlots staging_;
  ReadQueue queue_;  // used by the thread alone, but for wake()

  std::mutex mutex_;  // over all that follows; over a slot's memory, its job's state
  std::condition_variable done_;
  std::vector<Job> jobs_;  // by slot
  std::deque<int64_t> wanted_;
  std::deque<int64_t> guessed_;
  std::deque<int64_t> arrived_;
  std::vector<int64_t> unused_staging_;
  bool asleep_ = false;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace k3
