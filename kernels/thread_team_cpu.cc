// One loop at a time. The next range to take and the number of the loop are one atomic word, so a
// worker that comes late cannot take a range of another loop than the one whose description it
// read: its exchange fails, and what it read is forgotten. The caller gives the word the new loop's
// number, with no range to take, before it touches the description, and opens it afterwards; who
// has seen any of the new description, by acquiring it, cannot exchange the old word any more.
#include "kernels/thread_team.h"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "hwy/cache_control.h"
#include "schema/error.h"

namespace k3 {
namespace {

using Clock = std::chrono::steady_clock;

// How long a worker looks for work before it sleeps: longer than the gaps within a token.
constexpr std::chrono::microseconds kAwake{200};

constexpr uint64_t kRangeBits = 32;
constexpr uint64_t kRangeMask = (uint64_t{1} << kRangeBits) - 1;

class ThreadTeam {
 public:
  ThreadTeam() = default;
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam() {
    leaving_.store(true);
    next_.fetch_add(uint64_t{1} << kRangeBits);  // so that sleepers see a change
    next_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // False when the team is busy with another loop.
  bool try_run(int64_t threads, int64_t count, int64_t grain, RangeCall call, const void* body) {
    const std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    while (static_cast<int64_t>(workers_.size()) + 1 < threads) {
      const auto index = static_cast<int64_t>(workers_.size());
      workers_.emplace_back([this, index] { serve(index); });
    }
    const int64_t ranges = (count + grain - 1) / grain;
    K3_CHECK(static_cast<uint64_t>(ranges) < kRangeMask);
    const uint64_t loop = ((next_.load(std::memory_order_relaxed) >> kRangeBits) + 1) << kRangeBits;
    next_.store(loop | kRangeMask);
    helpers_.store(threads - 1, std::memory_order_release);
    count_.store(count, std::memory_order_release);
    grain_.store(grain, std::memory_order_release);
    ranges_.store(ranges, std::memory_order_release);
    call_.store(call, std::memory_order_release);
    body_.store(body, std::memory_order_release);
    done_.store(0, std::memory_order_release);
    next_.store(loop);
    if (sleepers_.load() > 0) next_.notify_all();

    while (take_range()) {
    }
    for (int64_t looks = 0; done_.load(std::memory_order_acquire) < ranges; ++looks) {
      if (looks < 1000) {
        hwy::Pause();
      } else {
        std::this_thread::yield();  // a worker may be waiting for this processor
      }
    }
    return true;
  }

 private:
  // Runs one range of the current loop; false when there is none left.
  bool take_range() {
    uint64_t next = next_.load(std::memory_order_acquire);
    while (true) {
      const auto range = static_cast<int64_t>(next & kRangeMask);
      if (range >= ranges_.load(std::memory_order_acquire)) return false;
      const int64_t count = count_.load(std::memory_order_acquire);
      const int64_t grain = grain_.load(std::memory_order_acquire);
      const RangeCall call = call_.load(std::memory_order_acquire);
      const void* body = body_.load(std::memory_order_acquire);
      // Success means that all of this was of the loop whose range is taken now; that loop does not
      // end, and its description stays, before the range is done.
      if (next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        call(body, range * grain, std::min((range + 1) * grain, count));
        done_.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
  }

  bool has_work(int64_t index) const {
    const uint64_t next = next_.load(std::memory_order_acquire);
    return index < helpers_.load(std::memory_order_acquire) &&
           static_cast<int64_t>(next & kRangeMask) < ranges_.load(std::memory_order_acquire);
  }

  void serve(int64_t index) {
    Clock::time_point sleep_at = Clock::now() + kAwake;
    for (int64_t looks = 1; !leaving_.load(std::memory_order_relaxed); ++looks) {
      if (has_work(index)) {
        while (has_work(index) && take_range()) {
        }
        sleep_at = Clock::now() + kAwake;
      } else if (looks % 64 != 0 || Clock::now() < sleep_at) {
        hwy::Pause();
      } else {
        sleepers_.fetch_add(1);
        const uint64_t seen = next_.load();
        if (!has_work(index) && !leaving_.load()) next_.wait(seen);
        sleepers_.fetch_sub(1);
        sleep_at = Clock::now() + kAwake;
      }
    }
  }

  std::mutex busy_;
  std::vector<std::thread> workers_;
  std::atomic<bool> leaving_{false};
  std::atomic<int64_t> sleepers_{0};

  // The loop: its description, then the word that makes it valid, each written by the caller only.
  std::atomic<int64_t> helpers_{0};  // workers that may take part
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> grain_{0};
  std::atomic<int64_t> ranges_{0};
  std::atomic<RangeCall> call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  alignas(64) std::atomic<uint64_t> next_{0};  // the loop's number, then its next range
  alignas(64) std::atomic<int64_t> done_{0};   // ranges
};

}  // namespace

int64_t team_threads() {
  const auto allowed = static_cast<int64_t>(
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
  return std::max<int64_t>(1, std::min<int64_t>(allowed, tbb::this_task_arena::max_concurrency()));
}

void run_ranges(int64_t threads, int64_t count, int64_t grain, RangeCall call, const void* body) {
  static ThreadTeam team;
  if (threads > 1 && team.try_run(threads, count, grain, call, body)) return;
  call(body, 0, count);
}

}  // namespace k3
