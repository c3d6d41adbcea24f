#include "kernels/activation.h"
#include "kernels/parallel.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

K3_FLATTEN void situ_glu_range(double beta, double linear_beta, const float* gate, const float* up,
                               int64_t n, float* y) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) y[i] = exact_situ_glu(beta, linear_beta, gate[i], up[i]);
}

K3_FLATTEN void silu_glu_range(const float* gate, const float* up, int64_t n, float* y) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) y[i] = exact_silu_glu(gate[i], up[i]);
}

K3_FLATTEN void sigmoid_gate_range(const float* x, const float* gate_logits, int64_t n, float* y) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) y[i] = exact_sigmoid_gate(x[i], gate_logits[i]);
}

K3_FLATTEN void add_range(const float* a, const float* b, int64_t n, float* y) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(situ_glu_range);
HWY_EXPORT(silu_glu_range);
HWY_EXPORT(sigmoid_gate_range);
HWY_EXPORT(add_range);

void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y) {
  parallel_ranges(n, 8, [&](int64_t begin, int64_t end) {
    if (rule.activation == Activation::kSitu) {
      HWY_DYNAMIC_DISPATCH(situ_glu_range)
      (rule.situ_beta, rule.situ_linear_beta, gate + begin, up + begin, end - begin, y + begin);
    } else {
      HWY_DYNAMIC_DISPATCH(silu_glu_range)(gate + begin, up + begin, end - begin, y + begin);
    }
  });
}

void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) {
  parallel_ranges(n, 2, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(sigmoid_gate_range)
    (x + begin, gate_logits + begin, end - begin, y + begin);
  });
}

void add(const float* a, const float* b, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(add_range)(a, b, n, y);
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
