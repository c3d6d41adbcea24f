// What the kernel tests share: inputs, comparison of bits, and every way the CPU can run a kernel.
#pragma once

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/simd_targets.h"

#include "hwy/highway.h"

namespace k3 {

// `count` values of a normal distribution with this standard deviation, the same on every run.
inline std::vector<float> normal_values(int64_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    // Twelve uniform numbers, because std::normal_distribution differs between libraries.
    float sum = -6.0f;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(generator() >> 8) * 0x1p-24f;
    value = sum * deviation;
  }
  return values;
}

inline void expect_same_bits(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "value " << i << " is " << got[i] << ", expected " << want[i];
  }
}

// |got - want| <= relative |want| + absolute for every value.
inline void expect_close(std::span<const float> got, std::span<const float> want, double relative,
                         double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(got[i]) - want[i]),
              relative * std::abs(static_cast<double>(want[i])) + absolute)
        << "value " << i << " is " << got[i] << ", expected " << want[i];
  }
}

// Runs `check` on every instruction set this machine has a compiled copy for, with one thread and
// with two.
template <class Check>
void on_every_target(const Check& check) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (int threads : {1, 2}) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", threads " + std::to_string(threads));
      tbb::task_arena arena(threads);
      arena.execute([&] { check(); });
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace k3
