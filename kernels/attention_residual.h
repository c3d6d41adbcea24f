// Attention residuals: what a layer reads is a softmax mix, per token, of the snapshots of the
// residual stream and the current prefix (kimi-k3 technical report, AttnRes).
//
// The score of a source is its RMS-normalised vector times (norm * proj); there is no 1 / sqrt(d),
// and the mix takes the raw sources, not the normalised ones.
//
// Exact: all in double, one rounding at the end. score = lane_sum(V * (norm * proj)) * inverse_rms
// (norm * proj is exact); the maximum; e^(score - maximum); their sum in the order of the sources;
// weight = e / sum; then the mix, one fma for each source in order. Against `reference` (index
// order, libm) scores differ by at most 2^-52 hidden max|score terms|, and the weights by as much
// relatively: below half a float ulp at any width in use, so the floats agree to one ulp of the
// largest source.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/elementary.h"
#include "kernels/lane_sum.h"
#include "kernels/rms_norm.h"
#include "schema/host_device.h"

namespace k3 {

K3_HOST_DEVICE inline double exact_source_score(const float* source, const float* norm,
                                                const float* proj, int64_t hidden, double epsilon) {
  const double sum = lane_sum(hidden, [=](int64_t i) {
    return static_cast<double>(source[i]) *
           (static_cast<double>(norm[i]) * static_cast<double>(proj[i]));
  });
  return sum * exact_inverse_rms(source, hidden, epsilon);
}

// Turns the scores of the sources into their weights, in place. A NaN makes all of them NaN.
K3_HOST_DEVICE inline void exact_source_weights(double* scores, int64_t sources) {
  double maximum = scores[0];
  for (int64_t j = 1; j < sources; ++j) maximum = scores[j] > maximum ? scores[j] : maximum;
  double sum = 0;
  for (int64_t j = 0; j < sources; ++j) {
    scores[j] = exp_in_double(scores[j] - maximum);
    sum += scores[j];
  }
  for (int64_t j = 0; j < sources; ++j) scores[j] /= sum;
}

// One step of the mix of one channel: from 0, source after source; the result is rounded to float.
K3_HOST_DEVICE inline double exact_mix_step(double sum, double weight, float value) {
  return std::fma(weight, static_cast<double>(value), sum);
}

}  // namespace k3

namespace k3::reference {
// sources: the snapshots ascending, then the prefix, at least one, each [tokens, hidden]; norm,
// proj [hidden]; y [tokens, hidden] overlaps no source.
void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                            const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                            float* y);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                            const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                            float* y);
}  // namespace k3::cpu
