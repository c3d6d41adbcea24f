#include <algorithm>
#include <array>
#include <vector>

#include "kernels/elementary.h"
#include "kernels/gradients.h"
#include "kernels/parallel.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient_elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::gradient::HWY_NAMESPACE {

// With tanh t and sigmoid s, (beta t(g / beta) s(g))' = (1 - t^2) s + beta t s (1 - s).
K3_FLATTEN void situ_glu_parts(double beta, double linear_beta, const float* gate, const float* up,
                               const float* gy, int64_t n, float* gate_part, float* up_part) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const auto g = static_cast<double>(gate[i]);
    const auto y = static_cast<double>(gy[i]);
    const double gate_tanh = tanh_in_double(g / beta);
    const double up_tanh = tanh_in_double(static_cast<double>(up[i]) / linear_beta);
    const double sigmoid = sigmoid_in_double(g);
    const double slope =
        (1.0 - gate_tanh * gate_tanh) * sigmoid + beta * gate_tanh * sigmoid * (1.0 - sigmoid);
    gate_part[i] = static_cast<float>(y * slope * linear_beta * up_tanh);
    up_part[i] = static_cast<float>(y * beta * gate_tanh * sigmoid * (1.0 - up_tanh * up_tanh));
  }
}

// (g s(g))' = s (1 + g (1 - s)).
K3_FLATTEN void silu_glu_parts(const float* gate, const float* up, const float* gy, int64_t n,
                               float* gate_part, float* up_part) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const auto g = static_cast<double>(gate[i]);
    const auto y = static_cast<double>(gy[i]);
    const double sigmoid = sigmoid_in_double(g);
    const double slope = sigmoid * (1.0 + g * (1.0 - sigmoid));
    gate_part[i] = static_cast<float>(y * slope * static_cast<double>(up[i]));
    up_part[i] = static_cast<float>(y * g * sigmoid);
  }
}

K3_FLATTEN void sigmoid_gate_parts(const float* x, const float* gate_logits, const float* gy,
                                   int64_t n, float* x_part, float* gate_part) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const auto y = static_cast<double>(gy[i]);
    const double sigmoid = sigmoid_in_double(static_cast<double>(gate_logits[i]));
    x_part[i] = static_cast<float>(y * sigmoid);
    gate_part[i] = static_cast<float>(y * static_cast<double>(x[i]) * sigmoid * (1.0 - sigmoid));
  }
}

// From sums of a convolution to the gradient of those sums, in place.
K3_FLATTEN void silu_slopes(const float* gy, int64_t n, double* sums) {
  for (int64_t i = 0; i < n; ++i) {
    const double sigmoid = sigmoid_in_double(sums[i]);
    sums[i] = static_cast<double>(gy[i]) * sigmoid * (1.0 + sums[i] * (1.0 - sigmoid));
  }
}

}  // namespace k3::gradient::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::gradient {
namespace {

HWY_EXPORT(situ_glu_parts);
HWY_EXPORT(silu_glu_parts);
HWY_EXPORT(sigmoid_gate_parts);
HWY_EXPORT(silu_slopes);

constexpr int64_t kStrip = 256;
using Strip = std::array<float, kStrip>;

void add_strip(const Strip& part, int64_t first, int64_t count, float* gradient) {
  if (gradient == nullptr) return;
  for (int64_t i = 0; i < count; ++i) gradient[first + i] += part[static_cast<size_t>(i)];
}

// parts(first, count, a, b) fills two strips of gradients, which are added to those given.
template <class Parts>
void add_strips(int64_t n, float* gradient_a, float* gradient_b, const Parts& parts) {
  constexpr int64_t kValueCost = 4;
  const int64_t strips = (n + kStrip - 1) / kStrip;
  parallel_ranges(strips, kStrip * kValueCost, [&](int64_t begin, int64_t end) {
    Strip a;
    Strip b;
    for (int64_t first = begin * kStrip; first < std::min(end * kStrip, n); first += kStrip) {
      const int64_t count = std::min(kStrip, n - first);
      parts(first, count, a.data(), b.data());
      add_strip(a, first, count, gradient_a);
      add_strip(b, first, count, gradient_b);
    }
  });
}

// The sums before SiLU of one token, from a window of zeros; taps are [taps, channels].
void convolve(const float* x, const float* taps_first, int64_t token, int64_t channels,
              int64_t taps, double* sums) {
  std::fill_n(sums, channels, 0.0);
  for (int64_t tap = std::max<int64_t>(0, taps - 1 - token); tap < taps; ++tap) {
    const float* input = x + (token + tap - (taps - 1)) * channels;
    const float* weight = taps_first + tap * channels;
    for (int64_t c = 0; c < channels; ++c) {
      sums[c] += static_cast<double>(weight[c]) * static_cast<double>(input[c]);
    }
  }
}

// A token's input reaches the sums of its own token and of the taps - 1 that follow.
void add_reached(const std::vector<float>& sum_gradients, const float* taps_first, int64_t token,
                 int64_t tokens, int64_t channels, int64_t taps, float* gx) {
  for (int64_t later = token; later < std::min(tokens, token + taps); ++later) {
    const float* gradient = sum_gradients.data() + later * channels;
    const float* weight = taps_first + (taps - 1 - (later - token)) * channels;
    for (int64_t c = 0; c < channels; ++c) gx[token * channels + c] += weight[c] * gradient[c];
  }
}

}  // namespace

void glu(const GluRule& rule, const float* gate, const float* up, const float* gy, int64_t n,
         float* g_gate, float* g_up) {
  add_strips(n, g_gate, g_up, [&](int64_t first, int64_t count, float* gate_part, float* up_part) {
    if (rule.activation == Activation::kSitu) {
      HWY_DYNAMIC_DISPATCH(situ_glu_parts)
      (rule.situ_beta, rule.situ_linear_beta, gate + first, up + first, gy + first, count,
       gate_part, up_part);
    } else {
      HWY_DYNAMIC_DISPATCH(silu_glu_parts)
      (gate + first, up + first, gy + first, count, gate_part, up_part);
    }
  });
}

void sigmoid_gate(const float* x, const float* gate_logits, const float* gy, int64_t n, float* gx,
                  float* g_gate_logits) {
  add_strips(n, gx, g_gate_logits,
             [&](int64_t first, int64_t count, float* x_part, float* gate_part) {
               HWY_DYNAMIC_DISPATCH(sigmoid_gate_parts)
               (x + first, gate_logits + first, gy + first, count, x_part, gate_part);
             });
}

void short_conv(const float* x, const float* weight, const float* gy, int64_t tokens,
                int64_t channels, int64_t taps, float* gx) {
  if (gx == nullptr) return;
  std::vector<float> taps_first(static_cast<size_t>(taps * channels));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      taps_first[static_cast<size_t>(tap * channels + c)] = weight[c * taps + tap];
    }
  }
  std::vector<float> sum_gradients(static_cast<size_t>(tokens * channels));
  parallel_ranges(tokens, channels * (taps + 4), [&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(channels));
    for (int64_t t = begin; t < end; ++t) {
      convolve(x, taps_first.data(), t, channels, taps, sums.data());
      HWY_DYNAMIC_DISPATCH(silu_slopes)(gy + t * channels, channels, sums.data());
      std::transform(sums.begin(), sums.end(), sum_gradients.data() + t * channels,
                     [](double sum) { return static_cast<float>(sum); });
    }
  });
  parallel_ranges(tokens, channels * taps, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      add_reached(sum_gradients, taps_first.data(), t, tokens, channels, taps, gx);
    }
  });
}

}  // namespace k3::gradient
#endif  // HWY_ONCE
