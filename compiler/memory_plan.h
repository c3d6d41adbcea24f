// How much memory a compile will take, decided before it writes a byte.
#pragma once

#include <cstdint>
#include <optional>

namespace k3 {

struct MemoryPlan {
  int64_t plan_bytes = 0;    // the program with the whole plan in it, at its peak
  int64_t worker_bytes = 0;  // each worker's buffers
  int64_t workers = 1;

  int64_t total_bytes() const { return plan_bytes + workers * worker_bytes; }
};

// As many workers as there are `threads` and as fit below `limit_bytes`. `buffer_bytes` is what one
// needs (encode_worker_bytes). Call it when the plan is complete. Throws Error, with the least
// limit that works, when not one fits.
MemoryPlan plan_memory(int64_t buffer_bytes, int64_t threads, std::optional<int64_t> limit_bytes);

}  // namespace k3
