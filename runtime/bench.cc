#include "runtime/bench.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "kernels/thread_team.h"
#include "runtime/expert_report.h"
#include "schema/error.h"
#include "schema/json_writer.h"

namespace k3 {
namespace {

constexpr int64_t kMostOfEach = int64_t{1} << 24;  // tokens of a prompt, new ones, and rounds

// Of an operation, slowest first.
struct Row {
  std::string operation;
  OperationCost cost;
  double share_of_time = 0;
  double bytes_per_second = 0;
  double share_of_read = 0;
  double share_of_bound = 0;  // the least seconds of its time; 0 where there is no bound
};

std::vector<Row> rows_of(const OperationTotals& totals, double seconds, bool has_bound) {
  std::vector<Row> rows;
  for (const auto& [operation, total] : totals) {
    const OperationCost& cost = total.cost;
    Row row{.operation = operation, .cost = cost, .share_of_time = cost.seconds / seconds};
    if (cost.seconds > 0) {
      row.bytes_per_second = static_cast<double>(cost.bytes) / cost.seconds;
      row.share_of_read = total.read_seconds / cost.seconds;
      if (has_bound) row.share_of_bound = total.least_seconds / cost.seconds;
    }
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return a.cost.seconds > b.cost.seconds; });
  return rows;
}

void print_phase(const char* phase, const Rate& rate, const std::vector<Row>& rows,
                 std::ostream& out) {
  char line[200];
  std::snprintf(line, sizeof line, "\n%s: %.1f tokens/s (%.1f to %.1f)\n", phase, rate.median,
                rate.least, rate.most);
  out << line;
  std::snprintf(line, sizeof line, "  %-22s %9s %10s %7s %12s %9s %9s %9s\n", "operation", "calls",
                "seconds", "time", "bytes", "GB/s", "of read", "of bound");
  out << line;
  for (const Row& row : rows) {
    char bound[16] = "";
    if (row.share_of_bound > 0) {
      std::snprintf(bound, sizeof bound, "%8.1f%%", 100 * row.share_of_bound);
    }
    std::snprintf(line, sizeof line, "  %-22s %9lld %10.4f %6.1f%% %12lld %9.2f %8.1f%% %9s\n",
                  row.operation.c_str(), static_cast<long long>(row.cost.calls), row.cost.seconds,
                  100 * row.share_of_time, static_cast<long long>(row.cost.bytes),
                  row.bytes_per_second / 1e9, 100 * row.share_of_read, bound);
    out << line;
  }
}

void write_phase(JsonWriter& json, const char* phase, const Rate& rate,
                 const std::vector<Row>& rows) {
  json.key(phase);
  json.begin_object();
  write_rate(json, "tokens_per_second", rate);
  json.key("operations");
  json.begin_array();
  for (const Row& row : rows) {
    json.begin_object();
    json.member("operation", row.operation);
    json.member("calls", row.cost.calls);
    json.member("seconds", row.cost.seconds);
    json.member("share_of_time", row.share_of_time);
    json.member("bytes", row.cost.bytes);
    json.member("gb_per_s", row.bytes_per_second / 1e9);
    json.member("share_of_read", row.share_of_read);
    if (row.share_of_bound > 0) json.member("share_of_bound", row.share_of_bound);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

void bench(const BenchOptions& options, std::ostream& out) {
  const BenchmarkOptions& asked = options.benchmark;
  for (const int64_t count : {asked.prompt_tokens, asked.new_tokens, int64_t{asked.rounds}}) {
    if (count >= 1 && count <= kMostOfEach) continue;
    throw Error("--prompt-tokens, --new-tokens or --rounds is ", count, ", expected 1 to ",
                kMostOfEach);
  }
  LoadedModel model(options.load);
  const BenchmarkResult result = run_benchmark(model.weights(), model.experts(), model.backend(),
                                               options.load, options.benchmark);
  const int64_t decoded = options.benchmark.rounds * options.benchmark.new_tokens;
  const bool has_bound = result.share_of_bound.median > 0;
  const auto prefill = rows_of(result.prefill_costs, result.prefill_seconds, false);
  const auto decode = rows_of(result.decode_costs, result.decode_seconds, has_bound);
  const int64_t threads = team_threads();
  const bool reads_experts = !model.experts().all_resident() && !model.backend().holds_experts();
  if (options.json) {
    JsonWriter json(out, 2);
    json.begin_object();
    json.member("backend", model.backend().name());
    json.member("threads", threads);
    write_rate(json, "read_gb_per_s", result.read_bandwidth, 1e9);
    if (has_bound) {
      write_rate(json, "decode_bound_tokens_per_second", result.decode_bound);
      write_rate(json, "decode_share_of_bound", result.share_of_bound);
    }
    write_phase(json, "prefill", result.prefill, prefill);
    write_phase(json, "decode", result.decode, decode);
    if (reads_experts) write_reading(json, model.experts(), result, decoded);
    json.end_object();
    out << '\n';
    return;
  }
  char line[200];
  std::snprintf(
      line, sizeof line,
      "backend %s, %lld threads, memory read %.2f GB/s (%.2f to %.2f) beside the rounds\n",
      std::string(model.backend().name()).c_str(), static_cast<long long>(threads),
      result.read_bandwidth.median / 1e9, result.read_bandwidth.least / 1e9,
      result.read_bandwidth.most / 1e9);
  out << line;
  print_phase("prefill", result.prefill, prefill, out);
  print_phase("decode", result.decode, decode, out);
  if (has_bound) {
    std::snprintf(
        line, sizeof line,
        "  %.1f %% (%.1f to %.1f) of the bound, %.1f tokens/s (%.1f to %.1f); from cache:",
        100 * result.share_of_bound.median, 100 * result.share_of_bound.least,
        100 * result.share_of_bound.most, result.decode_bound.median, result.decode_bound.least,
        result.decode_bound.most);
    out << line;
    for (const auto& [format, rate] : result.cache_rates) {
      std::snprintf(line, sizeof line, " %s %.1f Gweights/s",
                    std::string(format_name(format)).c_str(), rate / 1e9);
      out << line;
    }
    out << '\n';
  }
  if (reads_experts) print_reading(out, model.experts(), result, decoded);
}

}  // namespace k3
