// Compares floats by their bits. Which NaN a NaN is, is no part of the numeric contract.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace k3 {

inline testing::AssertionResult same_bits(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i])) {
      return testing::AssertionFailure()
             << "value " << i << " is " << got[i] << ", expected " << want[i];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace k3
