// Speed of each kernel on its own, against what this machine's memory and multipliers give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/backend.h"
#include "schema/format.h"

namespace k3 {

// One operation on one shape.
struct KernelRate {
  std::string operation;
  std::string format;  // of the weights; empty where there are none
  int64_t rows = 0;    // outputs, or heads
  int64_t cols = 0;    // inputs of an output
  int64_t batch = 1;   // tokens
  int threads = 1;
  bool from_memory = false;          // else its weights or state stay in the cores' own caches
  double seconds = 0;                // of one call, the best of five
  double bytes = 0;                  // of weights, scales or state that one call reads
  double weights = 0;                // multiply-adds of one call for one token
  double read_bytes_per_second = 0;  // of memory, all cores: the larger of before and after it
};

struct KernelBenchmarkOptions {
  std::string only;     // operations whose name and format contain this; empty: all
  int64_t cols = 7168;  // inputs of the matrices, a multiple of 32; K3's hidden size
};

struct KernelBenchmark {
  double multiply_adds_per_second = 0;  // one core, int16 into int32, from registers
  std::vector<KernelRate> rates;
};

// Runs every operation with one thread and with all of the running TBB arena's, on K3's shapes:
// from memory, going round matrices of 8 x the last-level cache together, and on a piece that fits
// a core's second-level cache.
KernelBenchmark run_kernel_benchmark(Backend& backend, const KernelBenchmarkOptions& options);

// Weights per second of products of the backend with one vector, from a matrix that stays in a
// core's own cache: one thread's, times those of the running arena, so that no disturbance of one
// of them makes it look slow.
double measure_cache_rate(Backend& backend, Format format);

}  // namespace k3
