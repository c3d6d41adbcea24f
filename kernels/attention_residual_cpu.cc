#include "kernels/attention_residual.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_residual_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

K3_FLATTEN double source_score(const float* source, const float* norm, const float* proj,
                               int64_t hidden, double epsilon) {
  return exact_source_score(source, norm, proj, hidden, epsilon);
}

// y[i] for the channels [begin, end) of one token, whose row starts at `offset` in every source.
K3_FLATTEN void mix_channels(const float* const* sources, const double* weights, int64_t count,
                             int64_t offset, int64_t begin, int64_t end, float* y) {
  constexpr int64_t kTile = 64;
  for (int64_t first = begin; first < end; first += kTile) {
    const int64_t width = end - first < kTile ? end - first : kTile;
    double sums[kTile] = {};
    for (int64_t j = 0; j < count; ++j) {
      const float* values = sources[j] + offset + first;
      for (int64_t i = 0; i < width; ++i) sums[i] = exact_mix_step(sums[i], weights[j], values[i]);
    }
    for (int64_t i = 0; i < width; ++i) y[offset + first + i] = static_cast<float>(sums[i]);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(source_score);
HWY_EXPORT(mix_channels);

// One token alone must use several threads too: the scores spread over sources, the mix over
// stretches of channels.
void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                            const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                            float* y) {
  K3_CHECK(!sources.empty());
  const auto count = static_cast<int64_t>(sources.size());
  std::vector<double> weights(static_cast<size_t>(tokens * count));
  parallel_ranges(tokens * count, hidden, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* source = sources[static_cast<size_t>(i % count)] + i / count * hidden;
      weights[static_cast<size_t>(i)] =
          HWY_DYNAMIC_DISPATCH(source_score)(source, norm, proj, hidden, epsilon);
    }
  });
  for (int64_t t = 0; t < tokens; ++t) exact_source_weights(weights.data() + t * count, count);

  constexpr int64_t kStretch = 1024;  // channels
  const int64_t stretches = (hidden + kStretch - 1) / kStretch;
  parallel_ranges(tokens * stretches, kStretch * count / 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / stretches;
      const int64_t first = i % stretches * kStretch;
      HWY_DYNAMIC_DISPATCH(mix_channels)
      (sources.data(), weights.data() + t * count, count, t * hidden, first,
       std::min(first + kStretch, hidden), y);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
