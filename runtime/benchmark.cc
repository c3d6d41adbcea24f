#include "runtime/benchmark.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/expert_read_bandwidth.h"
#include "runtime/kernel_benchmark.h"
#include "runtime/memory_bandwidth.h"
#include "runtime/sampler.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

Rate rate_of(std::vector<double> rates) {
  if (rates.empty()) return {};
  std::sort(rates.begin(), rates.end());
  return {.median = rates[rates.size() / 2], .least = rates.front(), .most = rates.back()};
}

// Drawn and not what the model would say, which with made weights goes round in circles, through
// the same experts.
std::vector<int32_t> drawn_ids(int round, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const double drawn = uniform_at(static_cast<uint64_t>(round + 1), static_cast<uint64_t>(i));
    ids.push_back(static_cast<int32_t>(drawn * static_cast<double>(vocab_size)));
  }
  return ids;
}

// As many reads as a visit of a layer starts that starts any.
int usual_reads_in_flight(const ExpertCache& experts) {
  const ExpertCacheStatistics& counts = experts.statistics();
  const double each = static_cast<double>(counts.misses) /
                      static_cast<double>(std::max<int64_t>(counts.missing_visits, 1));
  return std::clamp(static_cast<int>(std::lround(each)), 1, experts.reads().depth());
}

}  // namespace

void write_rate(JsonWriter& json, const std::string& name, const Rate& rate, double unit) {
  json.member(name, rate.median / unit);
  json.member(name + "_least", rate.least / unit);
  json.member(name + "_most", rate.most / unit);
}

double add_round(const OperationCosts& costs, double read_bandwidth, const CacheRates& cache_rates,
                 OperationTotals& totals) {
  double all_least = 0;
  for (const auto& [operation, cost] : costs) {
    OperationTotal& total = totals[operation];
    total.cost.calls += cost.calls;
    total.cost.seconds += cost.seconds;
    total.cost.bytes += cost.bytes;
    total.cost.weights += cost.weights;
    total.cost.format = cost.format;
    const double reading = static_cast<double>(cost.bytes) / read_bandwidth;
    const auto rate = cache_rates.find(cost.format);
    const bool has_rate = cost.weights > 0 && rate != cache_rates.end();
    const double working = has_rate ? static_cast<double>(cost.weights) / rate->second : 0;
    total.read_seconds += reading;
    total.least_seconds += std::max(reading, working);
    all_least += std::max(reading, working);
  }
  return all_least;
}

BenchmarkResult run_benchmark(const Weights& weights, ExpertCache& experts, Backend& backend,
                              const LoadOptions& load, const BenchmarkOptions& options) {
  const ModelConfig& config = weights.config();
  TimedBackend timed(backend);
  Forward forward(weights, experts, timed, load.chunk_tokens, prefetched_experts(load, config));
  BenchmarkResult result;
  std::vector<double> read_bandwidths;
  std::vector<double> prefill_rates;
  std::vector<double> decode_rates;
  std::vector<double> bounds;
  std::vector<double> shares_of_bound;
  std::vector<double> expert_read_rates;
  OperationCosts prefill_costs;
  const auto run_round = [&](Forward& through, int round) -> std::pair<double, double> {
    const std::vector<int32_t> ids =
        drawn_ids(round, options.prompt_tokens + options.new_tokens, config.vocab_size);
    const auto prompt = std::span(ids).first(static_cast<size_t>(options.prompt_tokens));
    SequenceState state(config);
    timed.reset();
    const Stopwatch prefill_watch;
    for (std::span<const int32_t> rest = prompt; !rest.empty();) {
      const auto count = std::min(rest.size(), static_cast<size_t>(load.chunk_tokens));
      through.run(rest.first(count), state);
      rest = rest.subspan(count);
    }
    const double prefill = prefill_watch.seconds();
    prefill_costs = timed.costs();
    timed.reset();
    experts.reset_statistics();
    const Stopwatch decode_watch;
    for (const int32_t& id : std::span(ids).subspan(prompt.size())) through.run({&id, 1}, state);
    return {prefill, decode_watch.seconds()};
  };
  // On a device the clock beside each operation costs more than the operations, and takes the whole
  // pass apart: the rates are of another run, without it.
  std::optional<Forward> untimed;
  if (!backend.works_on_host()) {
    untimed.emplace(weights, experts, backend, load.chunk_tokens, prefetched_experts(load, config));
  }
  run_round(forward, -1);  // warms up, and says which formats decoding reads
  if (backend.works_on_host()) {
    for (const auto& [operation, cost] : timed.costs()) {
      if (cost.weights == 0 || result.cache_rates.contains(cost.format)) continue;
      result.cache_rates[cost.format] = measure_cache_rate(backend, cost.format);
    }
  }
  const std::optional<double> device_bandwidth = backend.read_bandwidth();
  std::optional<ReadBandwidth> host_memory;
  if (!device_bandwidth) host_memory.emplace();
  const auto read_bandwidth = [&] {
    return device_bandwidth ? *device_bandwidth : host_memory->measure();
  };
  if (untimed) run_round(*untimed, -1);
  double before = read_bandwidth();
  for (int round = 0; round < options.rounds; ++round) {
    const auto [prefill, decode] = run_round(forward, round);
    const OperationCosts timed_prefill = prefill_costs;
    const OperationCosts timed_decode = timed.costs();
    const auto [prefill_alone, decode_alone] =
        untimed ? run_round(*untimed, round) : std::pair{prefill, decode};
    const double after = read_bandwidth();
    const double read = std::max(before, after);
    before = after;
    const auto tokens = static_cast<double>(options.new_tokens);
    read_bandwidths.push_back(read);
    prefill_rates.push_back(static_cast<double>(options.prompt_tokens) / prefill_alone);
    decode_rates.push_back(tokens / decode_alone);
    result.prefill_seconds += prefill;
    result.decode_seconds += decode;
    add_round(timed_prefill, read, result.cache_rates, result.prefill_costs);
    const double least = add_round(timed_decode, read, result.cache_rates, result.decode_costs);
    if (backend.works_on_host()) {
      bounds.push_back(tokens / least);
      shares_of_bound.push_back(least / decode_alone);
    }
    result.decode_experts += experts.statistics();
    if (!experts.all_resident() && !backend.holds_experts()) {
      expert_read_rates.push_back(measure_expert_read_bandwidth(
          weights.pack(), load.expert_reads, usual_reads_in_flight(experts), round));
    }
  }
  result.read_bandwidth = rate_of(read_bandwidths);
  result.prefill = rate_of(prefill_rates);
  result.decode = rate_of(decode_rates);
  result.decode_bound = rate_of(bounds);
  result.share_of_bound = rate_of(shares_of_bound);
  result.expert_read_bandwidth = rate_of(expert_read_rates);
  return result;
}

}  // namespace k3
