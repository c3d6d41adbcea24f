// The released fixture (64 rows of one expert's w1) has scale bytes 120, 121 and 122 in 15.4, 84.1
// and 0.5 % of its groups, and magnitudes 0 to 7 in 11.6, 22.1, 19.2, 15.3, 15.3, 10.5, 5.1 and
// 1.0 % of its codes. Gaussian weights under the smallest scale that fits give just that when their
// standard deviation is 1.575 steps: a group's largest of 32 stays below 3 steps with probability
// 0.154 and passes 6 with 0.005. Only that a maximum between 3 and 3.5 must not become 3 is added,
// because no released group has a maximum of 3.
#include "compiler/synth_mxfp4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "schema/error.h"
#include "schema/formats/mxfp4.h"

namespace k3 {
namespace {

constexpr int kExponentBias = 127;
constexpr float kNaturalDeviation = 1.575f;  // in steps of the scale

// The code of a magnitude in [0, 6]: nearest, ties to the even code.
unsigned magnitude_code(float steps) {
  return static_cast<unsigned>(steps > 0.25f) + static_cast<unsigned>(steps >= 0.75f) +
         static_cast<unsigned>(steps > 1.25f) + static_cast<unsigned>(steps >= 1.75f) +
         static_cast<unsigned>(steps > 2.5f) + static_cast<unsigned>(steps >= 3.5f) +
         static_cast<unsigned>(steps > 5.0f);
}

// The exponent e of the smallest 2^e with largest <= 6 * 2^e.
int scale_exponent(float largest) {
  int exponent = 0;
  const float fraction = std::frexp(largest, &exponent);  // largest = fraction * 2^exponent
  return fraction <= 0.75f ? exponent - 3 : exponent - 2;
}

}  // namespace

uint8_t quantize_mxfp4_group(std::span<const float> weights, std::span<std::byte> codes) {
  constexpr size_t kGroup = kMxfp4GroupInputs;
  constexpr unsigned kThree = 5;
  constexpr unsigned kFour = 6;
  constexpr uint32_t kSign = 0x80000000u;
  K3_CHECK(weights.size() == kGroup && weights.size() == 2 * codes.size());
  // Loops without branches over bits and lanes, which the compiler turns into vectors; magnitudes
  // compare as their bits do.
  std::array<uint32_t, kGroup> magnitudes;
  uint32_t largest = 0;
  for (size_t i = 0; i < kGroup; ++i) {
    magnitudes[i] = std::bit_cast<uint32_t>(weights[i]) & ~kSign;
    largest = std::max(largest, magnitudes[i]);
  }
  const int exponent =
      std::clamp(scale_exponent(std::bit_cast<float>(largest)), 1 - kExponentBias, kExponentBias);
  const float steps_per_unit = std::ldexp(1.0f, -exponent);
  std::array<uint32_t, kGroup> group;
  for (size_t i = 0; i < kGroup; ++i) {
    group[i] = magnitude_code(std::bit_cast<float>(magnitudes[i]) * steps_per_unit);
    if (magnitudes[i] == largest) group[i] = group[i] == kThree ? kFour : group[i];
    group[i] |= std::bit_cast<uint32_t>(weights[i]) >> 28 & 8u;
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::byte>(group[2 * i] | group[2 * i + 1] << 4);
  }
  return static_cast<uint8_t>(exponent + kExponentBias);
}

float natural_mxfp4_deviation(float wanted) {
  int exponent = 0;
  // Nearest by ratio: the fraction in [0.5, 1) rounds up from the square root of a half.
  if (std::frexp(wanted / kNaturalDeviation, &exponent) < 0.70710678f) --exponent;
  return std::ldexp(kNaturalDeviation, exponent);
}

}  // namespace k3
