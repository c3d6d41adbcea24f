#include "runtime/memory_bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/parallel.h"
#include "schema/stopwatch.h"

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

ReadBandwidth::ReadBandwidth() : buffer_(8 * last_level_cache_bytes()) {
  std::memset(buffer_.data(), 1, buffer_.span().size());
}

double ReadBandwidth::measure() const {
  constexpr int kRounds = 5;
  const auto* words = reinterpret_cast<const uint64_t*>(buffer_.data());
  const int64_t threads = team_threads();
  const int64_t part = buffer_.size_bytes() / 8 / threads;
  std::atomic<uint64_t> sink{0};  // keeps the sums alive
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    run_slots(threads,
              [&](int64_t i) { sink += sum_words(words + i * part, static_cast<size_t>(part)); });
    const double seconds = watch.seconds();
    best = std::max(best, static_cast<double>(threads * part * 8) / seconds);
  }
  return best;
}

}  // namespace k3
