// Speed of a pack on this machine: tokens per second, and for each operation the bytes it reads
// against what memory gives.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/loaded_model.h"
#include "runtime/timed_backend.h"

namespace k3 {

struct BenchmarkOptions {
  int64_t prompt_tokens = 64;
  int64_t new_tokens = 32;
  int rounds = 5;
};

// A rate per second over the rounds.
struct Rate {
  double median = 0;
  double least = 0;
  double most = 0;
};

struct BenchmarkResult {
  double read_bandwidth = 0;  // bytes per second, measured in this run
  Rate prefill;               // tokens
  Rate decode;                // tokens
  // Weights per second of products with one vector whose weights lie in the cores' own caches,
  // measured in this run: for the formats that decoding read, where the backend works on the host.
  std::map<Format, double> cache_rates;
  OperationCosts prefill_costs;  // of all rounds
  OperationCosts decode_costs;
  double prefill_seconds = 0;  // of all rounds, what the costs' shares refer to
  double decode_seconds = 0;
  ExpertCacheStatistics decode_experts;  // of all rounds
  // Bytes per second that the disk gives to reads of experts, as many in flight as a layer's visit
  // started on average: measured after each round where not all experts are in memory, else 0.
  Rate expert_read_bandwidth;
};

// The least seconds that an operation of decoding can take: its bytes at memory's speed, or its
// weights at the kernel's own speed from the cache where that takes longer.
double least_seconds(const BenchmarkResult& result, const OperationCost& cost);

// Runs rounds of prefill and decode, one token after the other, on ids drawn from a fixed sequence,
// others in each round, after one round of warming up.
BenchmarkResult run_benchmark(const Weights& weights, ExpertCache& experts, Backend& backend,
                              const LoadOptions& load, const BenchmarkOptions& options);

}  // namespace k3
