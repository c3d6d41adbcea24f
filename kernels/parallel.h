// The one way a CPU operation spreads over threads: disjoint ranges of independent rows.
//
// Each thread has a part of neighbouring rows to itself, for memory gives most to who reads on
// where it read before. The part is cut into ranges all the same, which others take when their own
// are used up: a thread that comes late, or is sent away, holds nobody up.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "kernels/thread_team.h"
#include "schema/layout.h"

namespace k3 {

// Loops that cost less, in nanoseconds or so, run inline: they would gain little, and lose a time
// slice where a thread that took a range has to give up its processor to another program.
inline constexpr int64_t kLeastSharedCost = int64_t{1} << 15;

// Rows of a range, of a loop of `count` rows that cost `cost_each` nanoseconds or so: a range costs
// about 4 microseconds or more, and a part has up to eight.
inline int64_t range_rows(int64_t threads, int64_t count, int64_t cost_each) {
  constexpr int64_t kRangeCost = int64_t{1} << 12;
  constexpr int64_t kRangesPerPart = 8;
  const int64_t least = std::max<int64_t>(1, kRangeCost / std::max<int64_t>(1, cost_each));
  const int64_t most_ranges = threads * kRangesPerPart;
  return std::max(least, divide_up(count, most_ranges));
}

struct LoopRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// A loop's ranges, while threads take them.
class RangeParts {
 public:
  RangeParts(int64_t threads, int64_t count, int64_t cost_each)
      : rows_(range_rows(threads, count, cost_each)),
        ranges_(divide_up(count, rows_)),
        parts_(std::min({threads, kMostParts, std::max<int64_t>(ranges_, 1)})) {
    for (int64_t i = 0; i < parts_; ++i) {
      part_[i] = {ranges_ * i / parts_ * rows_,
                  std::min(ranges_ * (i + 1) / parts_ * rows_, count)};
    }
  }

  int64_t ranges() const { return ranges_; }
  int64_t parts() const { return parts_; }

  // The next range of a part, or where that is used up, of the parts behind it, round about. Leaves
  // in `part` where it found one; false when there is none left.
  bool take(int64_t& part, LoopRange& range) {
    for (int64_t tried = 0; tried < parts_; ++tried) {
      const std::atomic_ref<int64_t> next(part_[part].next);
      if (next.load(std::memory_order_relaxed) < part_[part].end) {
        range.begin = next.fetch_add(rows_, std::memory_order_relaxed);
        range.end = std::min(range.begin + rows_, part_[part].end);
        if (range.begin < range.end) return true;
      }
      part = part + 1 < parts_ ? part + 1 : 0;
    }
    return false;
  }

 private:
  static constexpr int64_t kMostParts = 64;  // with more threads, some share one
  struct alignas(64) Part {
    int64_t next;  // behind the end once all is taken
    int64_t end;
  };

  int64_t rows_;  // of a range
  int64_t ranges_;
  int64_t parts_;
  Part part_[kMostParts];  // those behind `parts_` are not touched
};

// What a thread has of a loop's ranges.
class RangeTaker {
 public:
  RangeTaker(RangeParts& parts, int64_t slot) : parts_(parts), part_(slot % parts.parts()) {}

  // The next range to work on; false when there is none left.
  bool take(LoopRange& range) { return parts_.take(part_, range); }

 private:
  RangeParts& parts_;
  int64_t part_;
};

// Calls body(slot) for the slots [0, slots), on as many threads as are there.
template <class Body>
void run_slots(int64_t slots, const Body& body) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) body(slot);
  };
  run_ranges(
      slots, slots, 1,
      [](const void* typed, int64_t begin, int64_t end) {
        (*static_cast<const decltype(run)*>(typed))(begin, end);
      },
      &run);
}

// Calls body(taker) on several threads if the work is worth it. Each takes ranges until there are
// none left, and may prepare for itself what it needs for them; it may come when none are left.
template <class Body>
void parallel_takers(int64_t count, int64_t cost_each, const Body& body) {
  const int64_t threads = count * cost_each < kLeastSharedCost ? 1 : team_threads();
  RangeParts parts(threads, count, cost_each);
  const auto take_ranges = [&](int64_t slot) {
    RangeTaker taker(parts, slot);
    body(taker);
  };
  if (parts.parts() == 1) {
    take_ranges(0);
  } else {
    run_slots(parts.parts(), take_ranges);
  }
}

// Calls body(begin, end) for ranges that cover [0, count), on several threads if the work is worth
// it. The bodies write disjoint outputs: how ranges are cut changes no bits.
template <class Body>
void parallel_ranges(int64_t count, int64_t cost_each, const Body& body) {
  if (count <= 0) return;
  if (count * cost_each < kLeastSharedCost) {
    body(int64_t{0}, count);
    return;
  }
  parallel_takers(count, cost_each, [&](RangeTaker& taker) {
    for (LoopRange range; taker.take(range);) body(range.begin, range.end);
  });
}

// One of the two loops of parallel_phases.
template <class Body>
struct Phase {
  int64_t count;
  int64_t cost_each;
  const Body& body;
};

// Two loops as above in one parallel region: second.body starts when all of first.body is done.
// Whoever waits does so for ranges that other threads are running, as all are taken by then.
template <class First, class Second>
void parallel_phases(const Phase<First>& first, const Phase<Second>& second) {
  if (first.count * first.cost_each + second.count * second.cost_each < kLeastSharedCost) {
    if (first.count > 0) first.body(int64_t{0}, first.count);
    if (second.count > 0) second.body(int64_t{0}, second.count);
    return;
  }
  const int64_t threads = team_threads();
  RangeParts first_parts(threads, first.count, first.cost_each);
  RangeParts second_parts(threads, second.count, second.cost_each);
  std::atomic<int64_t> first_done{0};
  run_slots(std::max(first_parts.parts(), second_parts.parts()), [&](int64_t slot) {
    LoopRange range;
    for (RangeTaker taker(first_parts, slot); taker.take(range);) {
      first.body(range.begin, range.end);
      first_done.fetch_add(1, std::memory_order_release);
    }
    while (first_done.load(std::memory_order_acquire) < first_parts.ranges()) {
      std::this_thread::yield();
    }
    for (RangeTaker taker(second_parts, slot); taker.take(range);) {
      second.body(range.begin, range.end);
    }
  });
}

}  // namespace k3
