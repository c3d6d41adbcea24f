// The one way a CPU operation spreads over threads: disjoint ranges of independent rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "kernels/thread_team.h"

namespace k3 {

// Loops that cost less, in nanoseconds or so, run inline: they would gain little, and lose a time
// slice where a thread that took a range has to give up its processor to another program.
inline constexpr int64_t kLeastSharedCost = int64_t{1} << 15;

// How a loop of `count` rows is cut: rows of a range. `cost_each` is what a row costs, in
// nanoseconds or so. A range costs about 4 microseconds or more, and each thread gets up to four,
// so that one that comes late takes fewer; with eight, a matrix of 2 MiB takes a tenth longer, for
// reading starts anew with each.
inline int64_t range_rows(int64_t threads, int64_t count, int64_t cost_each) {
  constexpr int64_t kRangeCost = int64_t{1} << 12;
  constexpr int64_t kRangesPerThread = 4;
  const int64_t least = std::max<int64_t>(1, kRangeCost / std::max<int64_t>(1, cost_each));
  const int64_t most_ranges = threads * kRangesPerThread;
  return std::max(least, (count + most_ranges - 1) / most_ranges);
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
  const int64_t threads = team_threads();
  run_ranges(
      threads, count, range_rows(threads, count, cost_each),
      [](const void* typed, int64_t begin, int64_t end) {
        (*static_cast<const Body*>(typed))(begin, end);
      },
      &body);
}

// One of the two loops of parallel_phases.
template <class Body>
struct Phase {
  int64_t count;
  int64_t cost_each;
  const Body& body;
};

// Two loops as above in one parallel region: second.body starts when all of first.body is done.
// Ranges are taken in order, so whoever waits does so for ranges that other threads are running.
template <class First, class Second>
void parallel_phases(const Phase<First>& first, const Phase<Second>& second) {
  if (first.count * first.cost_each + second.count * second.cost_each < kLeastSharedCost) {
    if (first.count > 0) first.body(int64_t{0}, first.count);
    if (second.count > 0) second.body(int64_t{0}, second.count);
    return;
  }
  const int64_t threads = team_threads();
  const int64_t first_rows = range_rows(threads, first.count, first.cost_each);
  const int64_t second_rows = range_rows(threads, second.count, second.cost_each);
  const int64_t first_ranges = (first.count + first_rows - 1) / first_rows;
  const int64_t second_ranges = (second.count + second_rows - 1) / second_rows;
  std::atomic<int64_t> first_done{0};
  const auto one_range = [&](int64_t range) {
    if (range < first_ranges) {
      const int64_t begin = range * first_rows;
      first.body(begin, std::min(begin + first_rows, first.count));
      first_done.fetch_add(1, std::memory_order_release);
      return;
    }
    while (first_done.load(std::memory_order_acquire) < first_ranges) std::this_thread::yield();
    const int64_t begin = (range - first_ranges) * second_rows;
    second.body(begin, std::min(begin + second_rows, second.count));
  };
  const auto ranges = [&](int64_t begin, int64_t end) {
    for (int64_t range = begin; range < end; ++range) one_range(range);
  };
  run_ranges(
      threads, first_ranges + second_ranges, 1,
      [](const void* typed, int64_t begin, int64_t end) {
        (*static_cast<const decltype(ranges)*>(typed))(begin, end);
      },
      &ranges);
}

}  // namespace k3
