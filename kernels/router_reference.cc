#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/router.h"
#include "schema/error.h"

namespace k3::reference {

// A full sort, on purpose another way to the same order than exact_route's insertion.
void route(const RouterRule& rule, const float* logits, const float* bias,
           const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
           float* weights, float* scores) {
  K3_CHECK(rule.experts_per_token >= 1);
  const auto count = static_cast<size_t>(experts);
  std::vector<float> score(count);
  std::vector<int32_t> order;
  for (int64_t t = 0; t < tokens; ++t) {
    order.clear();
    for (size_t e = 0; e < count; ++e) {
      score[e] = static_cast<float>(
          1.0 /
          (1.0 + std::exp(-static_cast<double>(logits[t * experts + static_cast<int64_t>(e)]))));
      if (bias[e] != -INFINITY) order.push_back(static_cast<int32_t>(e));
    }
    if (scores != nullptr) std::copy(score.begin(), score.end(), scores + t * experts);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return exact_precedes(score[static_cast<size_t>(a)] + bias[a], source_ids[a],
                            score[static_cast<size_t>(b)] + bias[b], source_ids[b]);
    });
    if (static_cast<int64_t>(order.size()) > rule.experts_per_token) {
      order.resize(static_cast<size_t>(rule.experts_per_token));
    }
    double sum = 0;
    for (int32_t e : order) sum += score[static_cast<size_t>(e)];
    for (int64_t i = 0; i < rule.experts_per_token; ++i) {
      const int64_t at = t * rule.experts_per_token + i;
      if (i >= static_cast<int64_t>(order.size())) {
        slots[at] = -1;
        weights[at] = 0;
        continue;
      }
      slots[at] = order[static_cast<size_t>(i)];
      const double value = score[static_cast<size_t>(slots[at])];
      weights[at] = static_cast<float>((rule.renormalize ? value / (sum + 1e-20) : value) *
                                       rule.routed_scaling_factor);
    }
  }
}

}  // namespace k3::reference
