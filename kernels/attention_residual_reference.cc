#include <algorithm>
#include <vector>

#include "kernels/attention_residual.h"
#include "schema/error.h"

namespace k3::reference {

void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                            const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                            float* y) {
  K3_CHECK(!sources.empty());
  std::vector<double> weights(sources.size());
  for (int64_t t = 0; t < tokens; ++t) {
    for (size_t j = 0; j < sources.size(); ++j) {
      const float* v = sources[j] + t * hidden;
      double squares = 0;
      for (int64_t i = 0; i < hidden; ++i) squares += static_cast<double>(v[i]) * v[i];
      const double rms = std::sqrt(squares / static_cast<double>(hidden) + epsilon);
      double score = 0;
      for (int64_t i = 0; i < hidden; ++i) score += v[i] / rms * norm[i] * proj[i];
      weights[j] = score;
    }
    const double maximum = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - maximum);
    for (int64_t i = 0; i < hidden; ++i) {
      double mix = 0;
      for (size_t j = 0; j < sources.size(); ++j) {
        mix += weights[j] / sum * sources[j][t * hidden + i];
      }
      y[t * hidden + i] = static_cast<float>(mix);
    }
  }
}

}  // namespace k3::reference
