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

struct Row {
  std::string operation;
  OperationCost cost;
  double share_of_time = 0;
  double bytes_per_second = 0;
  double share_of_read = 0;
};

// Slowest first.
std::vector<Row> rows_of(const OperationCosts& costs, double seconds, double read_bandwidth) {
  std::vector<Row> rows;
  for (const auto& [operation, cost] : costs) {
    const double rate = cost.seconds > 0 ? static_cast<double>(cost.bytes) / cost.seconds : 0;
    rows.push_back({operation, cost, cost.seconds / seconds, rate, rate / read_bandwidth});
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
  std::snprintf(line, sizeof line, "  %-22s %9s %10s %7s %12s %9s %9s\n", "operation", "calls",
                "seconds", "time", "bytes", "GB/s", "of read");
  out << line;
  for (const Row& row : rows) {
    std::snprintf(line, sizeof line, "  %-22s %9lld %10.4f %6.1f%% %12lld %9.2f %8.1f%%\n",
                  row.operation.c_str(), static_cast<long long>(row.cost.calls), row.cost.seconds,
                  100 * row.share_of_time, static_cast<long long>(row.cost.bytes),
                  row.bytes_per_second / 1e9, 100 * row.share_of_read);
    out << line;
  }
}

void write_phase(JsonWriter& json, const char* phase, const Rate& rate,
                 const std::vector<Row>& rows) {
  json.key(phase);
  json.begin_object();
  json.member("tokens_per_second", rate.median);
  json.member("tokens_per_second_least", rate.least);
  json.member("tokens_per_second_most", rate.most);
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
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace

void bench(const BenchOptions& options, std::ostream& out) {
  if (options.benchmark.prompt_tokens < 1 || options.benchmark.new_tokens < 1 ||
      options.benchmark.rounds < 1) {
    throw Error("--prompt-tokens, --new-tokens and --rounds must be 1 or more");
  }
  LoadedModel model(options.load);
  const BenchmarkResult result = run_benchmark(model.weights(), model.experts(), model.backend(),
                                               options.load, options.benchmark);
  const int64_t decoded = options.benchmark.rounds * options.benchmark.new_tokens;
  const auto prefill = rows_of(result.prefill_costs, result.prefill_seconds, result.read_bandwidth);
  const auto decode = rows_of(result.decode_costs, result.decode_seconds, result.read_bandwidth);
  const int64_t threads = team_threads();
  const bool reads_experts = !model.experts().all_resident() && !model.backend().holds_experts();
  if (options.json) {
    JsonWriter json(out, 2);
    json.begin_object();
    json.member("backend", model.backend().name());
    json.member("threads", threads);
    json.member("read_gb_per_s", result.read_bandwidth / 1e9);
    write_phase(json, "prefill", result.prefill, prefill);
    write_phase(json, "decode", result.decode, decode);
    if (reads_experts) write_reading(json, model.experts(), result, decoded);
    json.end_object();
    out << '\n';
    return;
  }
  char line[120];
  std::snprintf(line, sizeof line, "backend %s, %lld threads, memory read %.2f GB/s in this run\n",
                std::string(model.backend().name()).c_str(), static_cast<long long>(threads),
                result.read_bandwidth / 1e9);
  out << line;
  print_phase("prefill", result.prefill, prefill, out);
  print_phase("decode", result.decode, decode, out);
  if (reads_experts) print_reading(out, model.experts(), result, decoded);
}

}  // namespace k3
