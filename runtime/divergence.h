// How far two predictions are apart. Logits are floats over the whole vocabulary, sums are double.
#pragma once

#include <span>

namespace k3 {

// log(sum exp(logit)), without overflow.
double log_sum_exp(std::span<const float> logits);

// KL(p || q) in nats for p, q = softmax of the logits, given their log-sum-exps.
double divergence(std::span<const float> p, double p_lse, std::span<const float> q, double q_lse);

}  // namespace k3
