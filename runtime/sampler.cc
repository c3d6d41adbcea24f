#include "runtime/sampler.h"

#include <algorithm>
#include <numeric>

#include "kernels/elementary.h"
#include "schema/error.h"
#include "schema/mix_bits.h"

namespace k3 {

double uniform_at(uint64_t seed, uint64_t counter) {
  return static_cast<double>(split_mix(split_mix(seed, 0) ^ counter, 0) >> 11) * 0x1p-53;
}

int32_t most_likely(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  if (!(options.temperature >= 0)) {
    throw Error("--temperature is ", options.temperature, ", expected 0 or more");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw Error("--top-p is ", options.top_p, ", expected more than 0 and at most 1");
  }
}

int32_t Sampler::sample(std::span<const float> logits, int64_t position) {
  const int32_t best = most_likely(logits);
  if (options_.temperature == 0) return best;
  const double largest = static_cast<double>(logits[static_cast<size_t>(best)]);
  weights_.resize(logits.size());
  std::transform(logits.begin(), logits.end(), weights_.begin(), [&](float logit) {
    return exp_in_double((static_cast<double>(logit) - largest) / options_.temperature);
  });
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto weight = [&](int32_t id) { return weights_[static_cast<size_t>(id)]; };
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
  });

  double total = 0;
  for (int32_t id : order_) total += weight(id);
  double kept = 0;
  size_t count = 0;
  while (count < order_.size() && kept < options_.top_p * total) kept += weight(order_[count++]);

  double left = uniform_at(options_.seed, static_cast<uint64_t>(position)) * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= weight(order_[i]);
    if (left < 0) return order_[i];
  }
  return order_[count - 1];
}

}  // namespace k3
