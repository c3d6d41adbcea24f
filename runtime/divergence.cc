#include "runtime/divergence.h"

#include <algorithm>
#include <cmath>

namespace k3 {

double log_sum_exp(std::span<const float> logits) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

double divergence(std::span<const float> p, double p_lse, std::span<const float> q, double q_lse) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - p_lse;
    const double log_q = static_cast<double>(q[i]) - q_lse;
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return sum;
}

}  // namespace k3
