#include "kernels/rms_norm.h"

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

K3_FLATTEN void rms_norm_row(const float* x, const float* weight, int64_t width, double epsilon,
                             float* y) {
  const double inverse_rms = exact_inverse_rms(x, width, epsilon);
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < width; ++i) y[i] = exact_rms_norm(x[i], inverse_rms, weight[i]);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(rms_norm_row);

void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
              float* y) {
  parallel_ranges(tokens, width, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(rms_norm_row)(x + t * width, weight, width, epsilon, y + t * width);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
