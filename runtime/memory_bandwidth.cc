#include "runtime/memory_bandwidth.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

namespace k3 {
namespace {

uint64_t sum_words(const uint64_t* words, size_t count) {
  uint64_t lanes[16] = {};
  for (size_t i = 0; i + 16 <= count; i += 16) {
    for (size_t lane = 0; lane < 16; ++lane) lanes[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace

int64_t last_level_cache_bytes() {
  for (int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long bytes = ::sysconf(name);
    if (bytes > 0) return bytes;
  }
  return int64_t{32} << 20;
}

double measure_read_bandwidth(int rounds) {
  std::vector<uint64_t> buffer(static_cast<size_t>(8 * last_level_cache_bytes()) / 8, 1);
  const auto threads = static_cast<size_t>(tbb::this_task_arena::max_concurrency());
  const size_t part = buffer.size() / threads;
  std::atomic<uint64_t> sink{0};  // keeps the sums alive
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    tbb::parallel_for(
        size_t{0}, threads,
        [&](size_t thread) { sink += sum_words(buffer.data() + thread * part, part); },
        tbb::static_partitioner());
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(threads * part * 8) / seconds);
  }
  return best;
}

}  // namespace k3
