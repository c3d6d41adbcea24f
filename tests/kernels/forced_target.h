// Runs the CPU kernels on one chosen instruction set, to compare the bits of all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "schema/highway_targets.h"

namespace k3 {

// The instruction sets of this machine that kernels may be compiled for, the portable code first.
inline std::vector<int64_t> testable_targets() {
  std::vector<int64_t> targets = {HWY_SCALAR};
  for (const int64_t target : {K3_NEON, HWY_SVE, HWY_SSE4, HWY_AVX2, HWY_AVX3, HWY_AVX3_DL}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  return targets;
}

// Holds every kernel to `target` (or the portable code, where a file has no copy for it) while it
// lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) {
    // SVE's machines run the NEON copy of what has none for SVE.
    hwy::GetChosenTarget().Update(target == HWY_SVE ? HWY_SVE | K3_NEON : target);
  }
  ~ForcedTarget() { hwy::GetChosenTarget().DeInit(); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
};

}  // namespace k3
