#include "runtime/benchmark.h"

#include <algorithm>
#include <chrono>

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

Rate rate_of(std::vector<double> seconds, int64_t tokens) {
  std::sort(seconds.begin(), seconds.end());
  const auto count = static_cast<double>(tokens);
  return {.median = count / seconds[seconds.size() / 2],
          .least = count / seconds.back(),
          .most = count / seconds.front()};
}

void add_costs(OperationCosts& total, const OperationCosts& part) {
  for (const auto& [operation, cost] : part) {
    total[operation].calls += cost.calls;
    total[operation].seconds += cost.seconds;
    total[operation].bytes += cost.bytes;
  }
}

}  // namespace

BenchmarkResult run_benchmark(const Weights& weights, ExpertCache& experts, Backend& backend,
                              const LoadOptions& load, const BenchmarkOptions& options) {
  const ModelConfig& config = weights.config();
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < options.prompt_tokens; ++i) {
    prompt.push_back(static_cast<int32_t>(uniform_at(0, static_cast<uint64_t>(i)) *
                                          static_cast<double>(config.vocab_size)));
  }
  TimedBackend timed(backend);
  Forward forward(weights, experts, timed, load.chunk_tokens, load.prefetch_experts);
  BenchmarkResult result;
  std::vector<double> prefill_seconds;
  std::vector<double> decode_seconds;
  for (int round = -1; round < options.rounds; ++round) {
    SequenceState state(config);
    timed.reset();
    const double prefill = seconds_of([&] {
      for (std::span<const int32_t> rest = prompt; !rest.empty();) {
        const auto count = std::min(rest.size(), static_cast<size_t>(load.chunk_tokens));
        forward.run(rest.first(count), state);
        rest = rest.subspan(count);
      }
    });
    const OperationCosts prefill_costs = timed.costs();
    timed.reset();
    const double decode = seconds_of([&] {
      for (int64_t i = 0; i < options.new_tokens; ++i) {
        const int32_t id = most_likely(state.last_logits);
        forward.run({&id, 1}, state);
      }
    });
    if (round < 0) continue;  // warming up
    prefill_seconds.push_back(prefill);
    decode_seconds.push_back(decode);
    result.prefill_seconds += prefill;
    result.decode_seconds += decode;
    add_costs(result.prefill_costs, prefill_costs);
    add_costs(result.decode_costs, timed.costs());
  }
  result.prefill = rate_of(prefill_seconds, options.prompt_tokens);
  result.decode = rate_of(decode_seconds, options.new_tokens);
  result.read_bandwidth = measure_read_bandwidth();
  return result;
}

}  // namespace k3
