#include "runtime/benchmark.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/expert_read_bandwidth.h"
#include "runtime/kernel_benchmark.h"
#include "runtime/memory_bandwidth.h"
#include "runtime/sampler.h"

namespace k3 {
namespace {

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Rate rate_of(std::vector<double> rates) {
  if (rates.empty()) return {};
  std::sort(rates.begin(), rates.end());
  return {.median = rates[rates.size() / 2], .least = rates.front(), .most = rates.back()};
}

void add_costs(OperationCosts& total, const OperationCosts& part) {
  for (const auto& [operation, cost] : part) {
    total[operation].calls += cost.calls;
    total[operation].seconds += cost.seconds;
    total[operation].bytes += cost.bytes;
    total[operation].weights += cost.weights;
    total[operation].format = cost.format;
  }
}

// As many reads as a visit of a layer starts that starts any.
int usual_reads_in_flight(const ExpertCache& experts) {
  const ExpertCacheStatistics& counts = experts.statistics();
  const double each = static_cast<double>(counts.misses) /
                      static_cast<double>(std::max<int64_t>(counts.missing_visits, 1));
  return std::clamp(static_cast<int>(std::lround(each)), 1, experts.reads().depth());
}

}  // namespace

double least_seconds(const BenchmarkResult& result, const OperationCost& cost) {
  const double reading = static_cast<double>(cost.bytes) / result.read_bandwidth;
  const auto rate = result.cache_rates.find(cost.format);
  if (cost.weights == 0 || rate == result.cache_rates.end()) return reading;
  return std::max(reading, static_cast<double>(cost.weights) / rate->second);
}

BenchmarkResult run_benchmark(const Weights& weights, ExpertCache& experts, Backend& backend,
                              const LoadOptions& load, const BenchmarkOptions& options) {
  const ModelConfig& config = weights.config();
  // Drawn and not what the model would say, which with made weights goes round in circles, through
  // the same experts.
  const auto drawn_ids = [&](int round) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < options.prompt_tokens + options.new_tokens; ++i) {
      const double drawn = uniform_at(static_cast<uint64_t>(round + 1), static_cast<uint64_t>(i));
      ids.push_back(static_cast<int32_t>(drawn * static_cast<double>(config.vocab_size)));
    }
    return ids;
  };
  TimedBackend timed(backend);
  Forward forward(weights, experts, timed, load.chunk_tokens, prefetched_experts(load, config));
  BenchmarkResult result;
  std::vector<double> prefill_rates;
  std::vector<double> decode_rates;
  std::vector<double> expert_read_rates;
  OperationCosts prefill_costs;
  const auto run_round = [&](Forward& through, int round) -> std::pair<double, double> {
    const std::vector<int32_t> ids = drawn_ids(round);
    const auto prompt = std::span(ids).first(static_cast<size_t>(options.prompt_tokens));
    SequenceState state(config);
    timed.reset();
    const double prefill = seconds_of([&] {
      for (std::span<const int32_t> rest = prompt; !rest.empty();) {
        const auto count = std::min(rest.size(), static_cast<size_t>(load.chunk_tokens));
        through.run(rest.first(count), state);
        rest = rest.subspan(count);
      }
    });
    prefill_costs = timed.costs();
    timed.reset();
    experts.reset_statistics();
    const double decode = seconds_of([&] {
      for (const int32_t& id : std::span(ids).subspan(prompt.size())) {
        through.run({&id, 1}, state);
      }
    });
    return {prefill, decode};
  };
  // On a device the clock beside each operation costs more than the operations, and takes the whole
  // pass apart: the rates are of another run, without it.
  std::optional<Forward> untimed;
  if (!backend.works_on_host()) {
    untimed.emplace(weights, experts, backend, load.chunk_tokens, prefetched_experts(load, config));
  }
  for (int round = -1; round < options.rounds; ++round) {
    const auto [prefill, decode] = run_round(forward, round);
    const OperationCosts timed_prefill = prefill_costs;
    const OperationCosts timed_decode = timed.costs();
    const auto [prefill_alone, decode_alone] =
        untimed ? run_round(*untimed, round) : std::pair{prefill, decode};
    if (round < 0) continue;  // warming up
    prefill_rates.push_back(static_cast<double>(options.prompt_tokens) / prefill_alone);
    decode_rates.push_back(static_cast<double>(options.new_tokens) / decode_alone);
    result.prefill_seconds += prefill;
    result.decode_seconds += decode;
    add_costs(result.prefill_costs, timed_prefill);
    add_costs(result.decode_costs, timed_decode);
    result.decode_experts += experts.statistics();
    if (!experts.all_resident() && !backend.holds_experts()) {
      expert_read_rates.push_back(measure_expert_read_bandwidth(
          weights.pack(), load.expert_reads, usual_reads_in_flight(experts), round));
    }
  }
  result.prefill = rate_of(prefill_rates);
  result.decode = rate_of(decode_rates);
  result.expert_read_bandwidth = rate_of(expert_read_rates);
  result.read_bandwidth = backend.read_bandwidth().value_or(0);
  if (result.read_bandwidth == 0) result.read_bandwidth = measure_read_bandwidth();
  for (const auto& [operation, cost] : result.decode_costs) {
    if (cost.weights == 0 || !backend.works_on_host()) continue;
    if (result.cache_rates.contains(cost.format)) continue;
    result.cache_rates[cost.format] = measure_cache_rate(backend, cost.format);
  }
  return result;
}

}  // namespace k3
