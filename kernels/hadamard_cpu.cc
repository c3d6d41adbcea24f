#include "kernels/hadamard.h"

#include <bit>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

K3_FLATTEN void hadamard_one(const float* x, int64_t block, double* work, float* y) {
  exact_hadamard_block(x, block, work, y);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(hadamard_one);

void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) {
  K3_CHECK(block > 0 && width % block == 0);
  const int64_t stages = std::bit_width(static_cast<uint64_t>(block));
  parallel_ranges(tokens * (width / block), block * stages / 4, [&](int64_t begin, int64_t end) {
    std::vector<double> work(static_cast<size_t>(block));
    for (int64_t i = begin; i < end; ++i) {
      HWY_DYNAMIC_DISPATCH(hadamard_one)(x + i * block, block, work.data(), y + i * block);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
