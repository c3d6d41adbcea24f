#include "kernels/thread_team.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <thread>
#include <vector>

#include "kernels/parallel.h"

namespace k3 {
namespace {

// Calls `visit` with the ranges of a loop, on four threads whatever the machine has.
template <class Visit>
void run_on_four(int64_t count, int64_t grain, const Visit& visit) {
  run_ranges(
      4, count, grain,
      [](const void* typed, int64_t begin, int64_t end) {
        (*static_cast<const Visit*>(typed))(begin, end);
      },
      &visit);
}

TEST(ThreadTeam, EveryRowOfEveryLoopIsVisitedOnce) {
  // Thousands of loops of changing sizes: a worker that comes late must find its loop gone.
  std::vector<int> visits(300);
  for (int64_t loop = 0; loop < 20000; ++loop) {
    const int64_t count = 1 + loop % 300;
    const int64_t grain = 1 + loop % 7;
    run_on_four(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(visits[static_cast<size_t>(i)], 1) << "row " << i << " of loop " << loop;
      visits[static_cast<size_t>(i)] = 0;
    }
  }
}

TEST(ThreadTeam, ALoopInsideALoopRunsOnItsOwnThread) {
  std::atomic<int64_t> sum{0};
  run_on_four(8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::thread::id outer = std::this_thread::get_id();
      run_on_four(4, 1, [&](int64_t inner_begin, int64_t inner_end) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        sum += inner_end - inner_begin;
      });
    }
  });
  EXPECT_EQ(sum, 32);
}

TEST(ThreadTeam, LoopsOfSeveralThreadsDoNotMix) {
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 1000; ++loop) {
        run_on_four(16, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 3 * 1000 * 16);
}

TEST(ThreadTeam, UsesTheThreadsThatTbbWould) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 5);
  tbb::task_arena(3).execute([] { EXPECT_EQ(team_threads(), 3); });
  tbb::task_arena(7).execute([] { EXPECT_EQ(team_threads(), 5); });
}

TEST(RangeParts, AThreadReadsItsPartInOrderAndThenWhatIsLeftOfOthers) {
  constexpr int64_t kSlow = 1 << 20;  // "nanoseconds": so that every row is a range
  RangeParts parts(3, 7, kSlow);
  ASSERT_EQ(parts.parts(), 3);
  ASSERT_EQ(parts.ranges(), 7);
  RangeTaker second(parts, 1);
  RangeTaker third(parts, 2);
  LoopRange range;
  const auto next = [&](RangeTaker& taker) { return taker.take(range) ? range.begin : -1; };
  EXPECT_EQ(next(third), 4);
  EXPECT_EQ(next(second), 2);
  EXPECT_EQ(next(second), 3);
  EXPECT_EQ(next(second), 5);
  EXPECT_EQ(next(third), 6);
  EXPECT_EQ(next(third), 0);
  EXPECT_EQ(next(second), 1);
  EXPECT_EQ(next(second), -1);
  EXPECT_EQ(next(third), -1);
}

TEST(RangeParts, EveryRowIsTakenOnceHoweverManyThreadsThereAre) {
  for (const int64_t threads : {1, 2, 5, 200}) {
    for (const int64_t count : {0, 1, 2, 63, 64, 65, 1000}) {
      for (const int64_t cost : {0, 1, 500, 1 << 20}) {
        RangeParts parts(threads, count, cost);
        std::vector<int> taken(static_cast<size_t>(count));
        for (int64_t slot = parts.parts() - 1; slot >= 0; --slot) {
          RangeTaker taker(parts, slot);
          for (LoopRange range; taker.take(range);) {
            for (int64_t i = range.begin; i < range.end; ++i) ++taken[static_cast<size_t>(i)];
          }
        }
        EXPECT_EQ(taken, std::vector<int>(static_cast<size_t>(count), 1))
            << threads << " threads, " << count << " rows of " << cost;
      }
    }
  }
}

TEST(ParallelRanges, EveryRowIsVisitedOnce) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 4);
  tbb::task_arena(4).execute([] {
    std::vector<int> visits(1000);
    for (int loop = 1; loop <= 2000; ++loop) {
      parallel_ranges(1000, 1000, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      ASSERT_EQ(visits, std::vector<int>(1000, loop));
    }
  });
}

TEST(ParallelPhases, TheSecondLoopSeesAllOfTheFirst) {
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, 4);
  tbb::task_arena(4).execute([] {
    constexpr int64_t kSlow = 1 << 20;  // "nanoseconds": so that every row is a range
    for (int round = 0; round < 2000; ++round) {
      std::vector<int> first(16);
      std::vector<int> second(8);
      const auto fill = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) first[static_cast<size_t>(i)] = 1;
      };
      const auto add = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          for (const int value : first) second[static_cast<size_t>(i)] += value;
        }
      };
      parallel_phases(Phase<decltype(fill)>{16, kSlow, fill}, Phase<decltype(add)>{8, kSlow, add});
      ASSERT_EQ(second, std::vector<int>(8, 16));
    }
  });
}

TEST(ParallelRanges, SmallWorkRunsInline) {
  const std::thread::id here = std::this_thread::get_id();
  int calls = 0;
  parallel_ranges(100, 10, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 100);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
  parallel_ranges(0, 10, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace k3
