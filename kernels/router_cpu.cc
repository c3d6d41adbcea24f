#include "kernels/router.h"

#include <vector>

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/router_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

K3_FLATTEN void sigmoid_range(const float* logits, int64_t n, float* scores) {
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) scores[i] = exact_sigmoid(logits[i]);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(sigmoid_range);

void route(const RouterRule& rule, const float* logits, const float* bias,
           const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
           float* weights, float* scores) {
  K3_CHECK(rule.experts_per_token >= 1);
  const int64_t k = rule.experts_per_token;
  parallel_ranges(tokens, experts * 4, [&](int64_t begin, int64_t end) {
    std::vector<float> own_scores(scores == nullptr ? static_cast<size_t>(experts) : 0);
    for (int64_t t = begin; t < end; ++t) {
      float* token_scores = scores == nullptr ? own_scores.data() : scores + t * experts;
      HWY_DYNAMIC_DISPATCH(sigmoid_range)(logits + t * experts, experts, token_scores);
      exact_route(rule, token_scores, bias, source_ids, experts, slots + t * k, weights + t * k);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
