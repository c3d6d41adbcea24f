// Speed of a pack on this machine: tokens per second, and for each operation the bytes it reads
// against what memory gives.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/loaded_model.h"
#include "runtime/timed_backend.h"
#include "schema/json_writer.h"

namespace k3 {

struct BenchmarkOptions {
  int64_t prompt_tokens = 64;
  int64_t new_tokens = 32;
  int rounds = 5;
};

// A number of each round, most often one per second, over the rounds.
struct Rate {
  double median = 0;
  double least = 0;
  double most = 0;
};

// A member for the median, and two for the ends; each divided by `unit`.
void write_rate(JsonWriter& json, const std::string& name, const Rate& rate, double unit = 1);

// An operation in all rounds. What memory gives changes while a benchmark runs, so each round is
// held against what it gave beside that round.
struct OperationTotal {
  OperationCost cost;
  double read_seconds = 0;   // what reading its bytes takes
  double least_seconds = 0;  // the same, or its weights at the kernel's own speed from the cache
                             // where that takes longer
};

// One total per operation and format, as in OperationCosts.
using OperationTotals = std::map<std::string, OperationTotal>;

// Weights per second of products with one vector whose weights lie in the cores' own caches.
using CacheRates = std::map<Format, double>;

// Adds a round beside which memory gave `read_bandwidth` bytes per second. Returns the round's
// least seconds, of all operations together.
double add_round(const OperationCosts& costs, double read_bandwidth, const CacheRates& cache_rates,
                 OperationTotals& totals);

struct BenchmarkResult {
  Rate read_bandwidth;  // bytes, of each round the larger one of before and after it
  Rate prefill;         // tokens
  Rate decode;          // tokens
  // Tokens that decoding could reach where each operation takes its least seconds, and the share of
  // them that it reached in the same round. Where the backend works on the host, else 0.
  Rate decode_bound;
  Rate share_of_bound;
  CacheRates cache_rates;  // measured in this run, for the formats that decoding reads
  OperationTotals prefill_costs;
  OperationTotals decode_costs;
  double prefill_seconds = 0;  // of all rounds, what the costs' shares refer to
  double decode_seconds = 0;
  ExpertCacheStatistics decode_experts;  // of all rounds
  // Bytes per second that the disk gives to reads of experts, as many in flight as a layer's visit
  // started on average: measured after each round where not all experts are in memory, else 0.
  Rate expert_read_bandwidth;
};

// Runs rounds of prefill and decode, one token after the other, on ids drawn from a fixed sequence,
// others in each round, after one round of warming up.
BenchmarkResult run_benchmark(const Weights& weights, ExpertCache& experts, Backend& backend,
                              const LoadOptions& load, const BenchmarkOptions& options);

}  // namespace k3
