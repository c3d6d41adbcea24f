// Activations as integers: int16 codes with one power-of-two step per vector.
//
// A power-of-two step makes scaling exact, and finding it takes only a maximum, which has no order;
// so every backend gets the same codes from the same floats. The range is 32639, not 32767: a
// backend may split a code into bytes, q = 256 h + l with both in [-128, 127], and from 32640 on h
// would have to be 128.
//
// Error: |x - q 2^e| <= 2^(e - 1) for every value of the vector, nothing else is lost.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "schema/host_device.h"

namespace k3 {

inline constexpr int kMaxActivationCode = 32639;

// What the codes of one vector count: x is about code * 2^exponent.
struct ActivationStep {
  int exponent = 0;
  // False: the vector holds a NaN or an infinity. Its codes are 0, and every output that reads it
  // is NaN.
  bool finite = true;
};

// 2^exponent. The exponent is held to the normal doubles, -1022..1023: where the contract
// multiplies by such a power, what lies beyond gives the same result (0, infinity, or out of
// range).
K3_HOST_DEVICE inline double power_of_two(int64_t exponent) {
  const int64_t held = exponent < -1022 ? -1022 : exponent > 1023 ? 1023 : exponent;
  return ldexp(1.0, static_cast<int>(held));
}

// 2^(step's exponent + shift), or NaN when the vector is not finite.
K3_HOST_DEVICE inline double step_power(ActivationStep step, int64_t shift) {
  return step.finite ? power_of_two(step.exponent + shift)
                     : std::numeric_limits<double>::quiet_NaN();
}

// The least e with magnitude <= 32639 * 2^e; 0 for magnitude 0. `magnitude` is finite and not
// negative. The result lies in -163..114, so 2^e and 2^-e are normal doubles (not floats).
K3_HOST_DEVICE inline int activation_exponent(float magnitude) {
  if (magnitude == 0.0F) return 0;
  // magnitude = fraction * 2^exponent with fraction in [1/2, 1), so fraction * 2^15 is at least
  // 16384 and one halving more would pass 32639.
  int exponent = 0;
  const double fraction = frexp(static_cast<double>(magnitude), &exponent);
  return fraction * 32768.0 <= kMaxActivationCode ? exponent - 15 : exponent - 14;
}

// rint(x * inverse_step), ties to even. |x| <= 32639 / inverse_step.
K3_HOST_DEVICE inline int16_t exact_activation_code(float x, double inverse_step) {
  return static_cast<int16_t>(rint(static_cast<double>(x) * inverse_step));
}

// Quantizes the `n` values of one vector.
K3_HOST_DEVICE inline ActivationStep exact_quantize(const float* x, int64_t n, int16_t* codes) {
  float magnitude = 0.0F;
  ActivationStep step;
  for (int64_t i = 0; i < n; ++i) {
    const float size = fabsf(x[i]);
    step.finite = step.finite && size <= std::numeric_limits<float>::max();  // false for NaN
    if (size > magnitude) magnitude = size;
  }
  if (!step.finite) {
    for (int64_t i = 0; i < n; ++i) codes[i] = 0;
    return step;
  }
  step.exponent = activation_exponent(magnitude);
  const double inverse_step = power_of_two(-step.exponent);
  for (int64_t i = 0; i < n; ++i) codes[i] = exact_activation_code(x[i], inverse_step);
  return step;
}

}  // namespace k3
