#include "kernels/short_conv.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short_conv_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

// y[c] for the channels [begin, end) of one token; y is that token's row.
K3_FLATTEN void short_conv_channels(const float* x, const float* window, const float* weight,
                                    int64_t token, int64_t channels, int64_t taps, int64_t begin,
                                    int64_t end, float* y) {
  constexpr int64_t kTile = 64;
  for (int64_t first = begin; first < end; first += kTile) {
    const int64_t width = end - first < kTile ? end - first : kTile;
    double sums[kTile] = {};
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float* input = short_conv_input(x, window, token, tap, channels, taps) + first;
      const float* tap_weight = weight + first * taps + tap;
      for (int64_t c = 0; c < width; ++c) {
        sums[c] = exact_short_conv_step(sums[c], tap_weight[c * taps], input[c]);
      }
    }
    for (int64_t c = 0; c < width; ++c) y[first + c] = exact_short_conv_end(sums[c]);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(short_conv_channels);

void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels, int64_t taps,
                float* window, float* y) {
  constexpr int64_t kStretch = 1024;  // channels
  const int64_t stretches = (channels + kStretch - 1) / kStretch;
  parallel_ranges(tokens * stretches, kStretch * 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / stretches;
      const int64_t first = i % stretches * kStretch;
      HWY_DYNAMIC_DISPATCH(short_conv_channels)
      (x, window, weight, t, channels, taps, first, std::min(first + kStretch, channels),
       y + t * channels);
    }
  });
  slide_short_conv_window(x, tokens, channels, taps, window);
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
