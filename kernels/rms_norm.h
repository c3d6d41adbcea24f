// RMSNorm: x / sqrt(mean(x^2) + epsilon) * weight, for each token.
//
// Exact: the squares are exact in double and are added in lane order; then, all in double, one
// division, one square root, one reciprocal, x * reciprocal * weight, and one rounding to float.
// Against `reference` (index order): a sum of n squares is off by at most n 2^-53 relatively in
// either order, which the square root halves, so for n <= 2^20 the doubles agree to 2^-32 and the
// floats to one ulp.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/lane_sum.h"
#include "schema/host_device.h"

namespace k3 {

// What the lane sum of `width` squares becomes.
K3_HOST_DEVICE inline double inverse_rms_of(double squares, int64_t width, double epsilon) {
  return 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon);
}

// 1 / sqrt(mean(x^2) + epsilon) of the `width` values at x.
K3_HOST_DEVICE inline double exact_inverse_rms(const float* x, int64_t width, double epsilon) {
  const double squares = lane_sum(width, [x](int64_t i) {
    const auto value = static_cast<double>(x[i]);
    return value * value;
  });
  return inverse_rms_of(squares, width, epsilon);
}

K3_HOST_DEVICE inline float exact_rms_norm(float x, double inverse_rms, float weight) {
  return static_cast<float>(static_cast<double>(x) * inverse_rms * static_cast<double>(weight));
}

}  // namespace k3

namespace k3::reference {
// x, y [tokens, width]; weight [width]; y may be x.
void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
              float* y);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
              float* y);
}  // namespace k3::cpu
