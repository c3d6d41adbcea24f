// bfloat16: the upper half of an IEEE binary32. Decoding is exact; encoding rounds to nearest, ties
// to even.
#pragma once

#include <bit>
#include <cstdint>

#include "schema/host_device.h"

namespace k3 {

K3_HOST_DEVICE inline float decode_bf16(uint16_t code) {
  const uint32_t bits = static_cast<uint32_t>(code) << 16;
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// NaN stays NaN (made quiet, payload's top bits kept); values beyond the largest finite bf16 become
// infinity.
K3_HOST_DEVICE inline uint16_t encode_bf16(float value) {
#ifdef __CUDA_ARCH__
  const uint32_t bits = __float_as_uint(value);
#else
  const auto bits = std::bit_cast<uint32_t>(value);
#endif
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  const uint32_t ties_to_even = (bits >> 16) & 1u;
  return static_cast<uint16_t>((bits + 0x7fffu + ties_to_even) >> 16);
}

}  // namespace k3
