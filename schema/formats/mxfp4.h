// MXFP4 (OCP Microscaling 1.0): 4-bit E2M1 codes, one 8-bit E8M0 scale per 32 consecutive inputs of
// a row.
//
// The checkpoint's experts were trained in this format, so we permute its bytes and never re-encode
// a value. For the exact numerics a code counts as the integer 2 x its value (0, 1, 2, 3, 4, 6, 8,
// 12 with a sign) and the scale is a power of two; negative zero (code 8) is as frequent as zero in
// real experts and keeps its code.
//
// In a byte the low nibble is the even input, the high nibble the odd one. Scale byte 0 means
// 2^-127 and 255 means NaN, as the standard says; building a float by shifting the byte into the
// exponent gets both wrong (0 and infinity).
#pragma once

#include <cmath>
#include <cstdint>

#include "schema/host_device.h"

namespace k3 {

inline constexpr int64_t kMxfp4GroupInputs = 32;
inline constexpr uint8_t kMxfp4NanScale = 255;

// The sixteen codes as twice their value, an integer in -12..12.
K3_HOST_DEVICE inline int decode_mxfp4_doubled(unsigned code) {
  // Nibble m of the constant is the doubled magnitude of code m (E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6).
  const int magnitude = static_cast<int>((0xC8643210u >> (4u * (code & 7u))) & 15u);
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

// 2^(byte - 127) as a double, exact for every byte but 255, which is NaN.
K3_HOST_DEVICE inline double decode_e8m0(uint8_t scale) {
  if (scale == kMxfp4NanScale) return NAN;
  return ldexp(1.0, static_cast<int>(scale) - 127);
}

// The value of a code under a scale, exact in float (the least magnitude, 2^-128, is a subnormal
// float).
K3_HOST_DEVICE inline float decode_mxfp4(unsigned code, uint8_t scale) {
  return static_cast<float>(0.5 * decode_mxfp4_doubled(code) * decode_e8m0(scale));
}

// The nibble of input `i` in a row of packed codes.
K3_HOST_DEVICE inline unsigned mxfp4_code_at(const uint8_t* codes, int64_t i) {
  return (codes[i / 2] >> (4 * (i & 1))) & 15u;
}

}  // namespace k3
