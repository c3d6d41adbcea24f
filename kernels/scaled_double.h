// Floats as doubles by integer instructions.
//
// GPUs outside data centres convert between float and double as slowly as they multiply doubles,
// 1/64 of the speed of floats; moving bits is free beside it.
#pragma once

#include <cstdint>

#include "kernels/elementary.h"
#include "schema/host_device.h"

namespace k3 {

K3_HOST_DEVICE inline uint32_t float_bits(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

K3_HOST_DEVICE inline float float_from_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

K3_HOST_DEVICE inline double double_from_words(uint32_t high, uint32_t low) {
#ifdef __CUDA_ARCH__
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
#else
  return double_from_bits(static_cast<uint64_t>(high) << 32 | low);
#endif
}

// static_cast<double>(value), by the slow instruction only for zeros, subnormals, infinities and
// NaNs.
K3_HOST_DEVICE inline double widen(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude - 0x00800000u >= 0x7f000000u) return static_cast<double>(value);
  return double_from_words((bits & 0x80000000u) | ((magnitude >> 3) + 0x38000000u), bits << 29);
}

// Where a sum of products w x runs over millions of weights, even the test for such values costs
// too much. Without the change of bias the same bits are w 2^-896, for zeros and subnormals too;
// and x 2^896, made once per vector, is never too large for a double. So the product of the two is
// w x, exactly, and fma(w 2^-896, x 2^896, sum) has the bits of sum + w x. Infinite and NaN weights
// it gets wrong: whoever uses it looks for them.
K3_HOST_DEVICE inline double scaled_weight(uint32_t float_bits_of_weight) {
  const auto shifted = static_cast<uint32_t>(static_cast<int32_t>(float_bits_of_weight) >> 3);
  return double_from_words(shifted & 0x8fffffffu, float_bits_of_weight << 29);
}
// For weights whose low 16 bits are zero: bf16.
K3_HOST_DEVICE inline double scaled_short_weight(uint32_t float_bits_of_weight) {
  const auto shifted = static_cast<uint32_t>(static_cast<int32_t>(float_bits_of_weight) >> 3);
  return double_from_words(shifted & 0x8fffe000u, 0);
}
K3_HOST_DEVICE inline double scaled_activation(float x) {
  return static_cast<double>(x) * 0x1p896;
}

}  // namespace k3
