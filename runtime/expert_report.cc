#include "runtime/expert_report.h"

#include <cstdio>

namespace k3 {
namespace {

// Of the experts that had to be read, the share that a guess had asked for already.
double share_guessed(const ExpertCacheStatistics& experts) {
  const int64_t absent = experts.prefetch_hits + experts.misses;
  return absent == 0 ? 0 : static_cast<double>(experts.prefetch_hits) / static_cast<double>(absent);
}

}  // namespace

void begin_experts(JsonWriter& json, const ExpertCache& experts,
                   const ExpertCacheStatistics& statistics) {
  json.key("experts");
  json.begin_object();
  json.member("held", experts.capacity_experts());
  json.member("all_held", experts.all_resident());
  json.member("reads", describe_reads(experts.reads()));
  json.member("hits", statistics.hits);
  json.member("prefetch_hits", statistics.prefetch_hits);
  json.member("misses", statistics.misses);
  json.member("missed_bytes", statistics.missed_bytes);
  json.member("prefetched_bytes", statistics.prefetched_bytes);
  json.member("bytes_read", statistics.bytes_read);
  json.member("stall_seconds", statistics.stall_seconds);
}

ReadingCost reading_cost(const BenchmarkResult& result, int64_t tokens) {
  ReadingCost cost{.token_seconds = result.decode_seconds};
  for (const auto& [operation, total] : result.decode_costs) {
    cost.compute_seconds += total.cost.seconds;
  }
  cost.read_seconds =
      static_cast<double>(result.decode_experts.missed_bytes) / result.expert_read_bandwidth.median;
  for (double* seconds : {&cost.token_seconds, &cost.compute_seconds, &cost.read_seconds}) {
    *seconds /= static_cast<double>(tokens);
  }
  return cost;
}

void write_reading(JsonWriter& json, const ExpertCache& experts, const BenchmarkResult& result,
                   int64_t tokens) {
  const ReadingCost cost = reading_cost(result, tokens);
  begin_experts(json, experts, result.decode_experts);
  json.member("tokens", tokens);
  json.member("share_guessed", share_guessed(result.decode_experts));
  write_rate(json, "disk_gb_per_s", result.expert_read_bandwidth, 1e9);
  json.member("token_seconds", cost.token_seconds);
  json.member("compute_seconds", cost.compute_seconds);
  json.member("read_seconds", cost.read_seconds);
  json.member("token_to_compute_and_read", cost.ratio());
  json.end_object();
}

void print_reading(std::ostream& out, const ExpertCache& experts, const BenchmarkResult& result,
                   int64_t tokens) {
  const ExpertCacheStatistics& counts = result.decode_experts;
  const ReadingCost cost = reading_cost(result, tokens);
  const auto each = [tokens](auto total) {
    return static_cast<double>(total) / static_cast<double>(tokens);
  };
  char lines[600];
  std::snprintf(
      lines, sizeof lines,
      "\nexperts of a decoded token: %.1f hit, %.1f guessed, %.1f missed; %lld held, %.1f%% of "
      "absent ones guessed\n"
      "  read: %.2f MB missed, %.2f MB guessed; disk %.3f GB/s (%.3f to %.3f), %s\n"
      "  time: %.2f ms, of that waited %.2f ms; computing %.2f ms and then reading %.2f ms would "
      "take %.2f ms: ratio %.3f\n",
      each(counts.hits), each(counts.prefetch_hits), each(counts.misses),
      static_cast<long long>(experts.capacity_experts()), 100 * share_guessed(counts),
      each(counts.missed_bytes) / 1e6, each(counts.prefetched_bytes) / 1e6,
      result.expert_read_bandwidth.median / 1e9, result.expert_read_bandwidth.least / 1e9,
      result.expert_read_bandwidth.most / 1e9, describe_reads(experts.reads()).c_str(),
      cost.token_seconds * 1e3, each(counts.stall_seconds) * 1e3, cost.compute_seconds * 1e3,
      cost.read_seconds * 1e3, (cost.compute_seconds + cost.read_seconds) * 1e3, cost.ratio());
  out << lines;
}

}  // namespace k3
