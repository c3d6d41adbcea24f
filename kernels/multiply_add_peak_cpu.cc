#include "kernels/multiply_add_peak.h"

#include <cstddef>

#include "kernels/simd_targets.h"

// The targets of the products that are measured against this.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (K3_FOREIGN_TARGETS | HWY_SVE)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/multiply_add_peak_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

constexpr size_t kSums = 6;  // independent, which hides the latency of a step

#if HWY_TARGET == HWY_SCALAR

int64_t multiply_adds(int64_t count, int16_t seed, int64_t& sink) {
  uint32_t sums[kSums] = {};
  for (int64_t i = 0; i < count; i += kSums) {
    for (size_t s = 0; s < kSums; ++s) {
      sums[s] += static_cast<uint32_t>(static_cast<int16_t>(i)) *
                 static_cast<uint32_t>(seed + static_cast<int16_t>(s));
    }
  }
  for (const uint32_t sum : sums) sink += sum;
  return count;
}

#else

int64_t multiply_adds(int64_t count, int16_t seed, int64_t& sink) {
  const D16 d16;
  V16 factors[kSums];
  V32 sums[kSums];
  for (size_t s = 0; s < kSums; ++s) {
    factors[s] = hn::Set(d16, static_cast<int16_t>(seed + static_cast<int16_t>(s)));
    sums[s] = hn::Zero(D32());
  }
  V16 x = hn::Iota(d16, 0);
  int64_t done = 0;
  for (; done < count; done += static_cast<int64_t>(kSums * (kBytes / 2))) {
    x = hn::Add(x, factors[0]);
    for (size_t s = 0; s < kSums; ++s) sums[s] = multiply_add(x, factors[s], sums[s]);
  }
  for (const V32& sum : sums) sink += sum_of_lanes(sum);
  return done;
}

#endif

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(multiply_adds);

int64_t run_multiply_adds(int64_t count, int64_t& sum) {
  static volatile int16_t seed = 3;  // so that nothing is computed when compiling
  return HWY_DYNAMIC_DISPATCH(multiply_adds)(count, seed, sum);
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
