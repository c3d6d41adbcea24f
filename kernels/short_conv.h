// The short causal convolution of KDA's q, k and v: depthwise over the last `taps` tokens, then
// SiLU.
//
// Exact: the products are exact in double and are added from the oldest token to the newest; SiLU
// in double; one rounding to float. `reference` differs only in libm's exp: one ulp.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/elementary.h"
#include "schema/host_device.h"

namespace k3 {

// One step of the sum of one channel: from 0, oldest tap first. The product is exact, so a fused
// and a separate addition give the same bits.
K3_HOST_DEVICE inline double exact_short_conv_step(double sum, float weight, float input) {
  return sum + static_cast<double>(weight) * static_cast<double>(input);
}

K3_HOST_DEVICE inline float exact_short_conv_end(double sum) {
  return static_cast<float>(silu_in_double(sum));
}

// The input row [channels] that tap `tap` of token `token` reads: one of x [tokens, channels], or
// of the window [taps - 1, channels] that the tokens before left.
K3_HOST_DEVICE inline const float* short_conv_input(const float* x, const float* window,
                                                    int64_t token, int64_t tap, int64_t channels,
                                                    int64_t taps) {
  const int64_t row = token + tap - (taps - 1);
  return row >= 0 ? x + row * channels : window + (row + taps - 1) * channels;
}

// Moves the window past x: its rows become the last taps - 1 inputs, oldest first.
inline void slide_short_conv_window(const float* x, int64_t tokens, int64_t channels, int64_t taps,
                                    float* window) {
  // Ascending, so that a row of the old window is read before it is overwritten.
  for (int64_t row = 0; row < taps - 1; ++row) {
    const float* input = short_conv_input(x, window, tokens, row, channels, taps);
    std::memmove(window + row * channels, input, static_cast<size_t>(channels) * sizeof(float));
  }
}

}  // namespace k3

namespace k3::reference {
// x, y [tokens, channels]; weight [channels, taps], whose last tap multiplies the current token;
// window [taps - 1, channels], oldest first, zeros at the start of a sequence, becomes the last
// taps - 1 inputs. taps >= 1.
void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels, int64_t taps,
                float* window, float* y);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels, int64_t taps,
                float* window, float* y);
}  // namespace k3::cpu
