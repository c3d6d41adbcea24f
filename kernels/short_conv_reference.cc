#include <cmath>

#include "kernels/short_conv.h"

namespace k3::reference {

void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels, int64_t taps,
                float* window, float* y) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const double input = short_conv_input(x, window, t, tap, channels, taps)[c];
        sum += weight[c * taps + tap] * input;
      }
      y[t * channels + c] = static_cast<float>(sum / (1.0 + std::exp(-sum)));
    }
  }
  slide_short_conv_window(x, tokens, channels, taps, window);
}

}  // namespace k3::reference
