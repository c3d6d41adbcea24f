// How fast this machine's cores can read memory: what every GB/s of a benchmark is compared with.
#pragma once

#include <cstdint>

#include "schema/aligned_bytes.h"

namespace k3 {

// Bytes of the largest data cache, from the system; 32 MiB when it does not say.
int64_t last_level_cache_bytes();

// Measures against a buffer of 8 x the last-level cache, which it keeps, for what memory gives
// changes from minute to minute on a machine that others share: who measures a speed measures
// memory's beside it.
class ReadBandwidth {
 public:
  ReadBandwidth();

  // Bytes per second that all threads of parallel loops (kernels/thread_team.h) together read, the
  // best of five. Each thread sums its part in plain 64-bit adds that vectorise.
  double measure() const;

 private:
  AlignedBytes buffer_;
};

}  // namespace k3
