// Chooses the next token from logits.
//
// The random number of a position is a function of the seed and the position alone. So a sequence
// continued from a saved state draws the same tokens as one that was never interrupted, and nothing
// but the seed has to be stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace k3 {

struct SamplingOptions {
  double temperature = 0;  // 0: the most likely token, the lowest id among equals
  double top_p = 1;        // keep the fewest most likely tokens whose probabilities reach this sum
  uint64_t seed = 0;
};

class Sampler {
 public:
  // Throws Error for a temperature below 0 or top_p outside (0, 1].
  explicit Sampler(const SamplingOptions& options);

  // The token for `position` (the number of tokens before it). Logits are finite; [vocab].
  int32_t sample(std::span<const float> logits, int64_t position);

 private:
  SamplingOptions options_;
  std::vector<double> weights_;
  std::vector<int32_t> order_;
};

// The lowest id among the largest logits.
int32_t most_likely(std::span<const float> logits);

// Uniform in [0, 1) from 53 bits, the same on every machine.
double uniform_at(uint64_t seed, uint64_t counter);

}  // namespace k3
