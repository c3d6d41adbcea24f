// The plan is not estimated but measured: the kernel's record of this process's peak covers import,
// passes and the first encoding of the index, and what comes after the workers (the index once
// more) is smaller than what came before them. The workers' buffers are ours to count. So the sum
// is an upper bound, tight where it matters: K3's plan is a small part of it.
#include "compiler/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "compiler/quantities.h"
#include "schema/error.h"

namespace k3 {
namespace {

// A thread's stack, and what an allocator keeps for it.
constexpr int64_t kThreadBytes = int64_t{1} << 20;

// /proc, not getrusage: that one's peak outlives exec and may be another program's.
int64_t peak_bytes() {
  const std::string field = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return 1024 * std::stoll(line.substr(field.size()));
  }
  return 0;
}

}  // namespace

MemoryPlan plan_memory(int64_t buffer_bytes, int64_t threads, std::optional<int64_t> limit_bytes) {
  MemoryPlan memory{peak_bytes(), buffer_bytes + kThreadBytes, threads};
  if (!limit_bytes) return memory;
  memory.workers = std::min(threads, (*limit_bytes - memory.plan_bytes) / memory.worker_bytes);
  if (memory.workers >= 1) return memory;
  // The measured peak differs by some pages from run to run.
  const int64_t least = memory.plan_bytes + memory.plan_bytes / 32 + memory.worker_bytes;
  constexpr double kHundredths = 1e7;  // of a gigabyte
  throw Error("--memory-gb: ", fixed(static_cast<double>(*limit_bytes) / 1e9, 2),
              " GB are too little: the plan takes ", sized(memory.plan_bytes), ", a worker ",
              sized(memory.worker_bytes), "; the least that works is ",
              fixed(std::ceil(static_cast<double>(least) / kHundredths) / 100, 2));
}

}  // namespace k3
