// What the expert cache did, as run and bench report it.
#pragma once

#include <cstdint>
#include <ostream>

#include "runtime/benchmark.h"
#include "runtime/expert_cache.h"
#include "schema/json_writer.h"

namespace k3 {

// Opens the member "experts": how many are held, how others are read, and the counts. The caller
// may add members and ends the object.
void begin_experts(JsonWriter& json, const ExpertCache& experts,
                   const ExpertCacheStatistics& statistics);

// A decoded token of a cache that reads, against doing one thing after the other: the time of its
// operations, and that of reading what was asked for and missing at the bandwidth that the disk had
// in the same run.
struct ReadingCost {
  double token_seconds = 0;
  double compute_seconds = 0;
  double read_seconds = 0;
  double ratio() const { return token_seconds / (compute_seconds + read_seconds); }
};

// `tokens` is how many were decoded in all rounds.
ReadingCost reading_cost(const BenchmarkResult& result, int64_t tokens);

void write_reading(JsonWriter& json, const ExpertCache& experts, const BenchmarkResult& result,
                   int64_t tokens);
void print_reading(std::ostream& out, const ExpertCache& experts, const BenchmarkResult& result,
                   int64_t tokens);

}  // namespace k3
