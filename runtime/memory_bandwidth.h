// How fast this machine's cores can read memory: what every GB/s of a benchmark is compared with.
#pragma once

#include <cstdint>

namespace k3 {

// Bytes of the largest data cache, from the system; 32 MiB when it does not say.
int64_t last_level_cache_bytes();

// Bytes per second that all threads of parallel loops (kernels/thread_team.h) together read from a
// buffer of 8 x the last-level cache, the best of `rounds`. Each thread sums its part in plain
// 64-bit adds that vectorise.
double measure_read_bandwidth(int rounds = 5);

}  // namespace k3
