// The router: which experts a token uses, and with what weights.
//
// score = sigmoid(logit), rounded to float; selection = score + bias, added in float. The k largest
// selections are chosen in a total order: selection descending, then source id (the expert's number
// in the checkpoint) ascending, so that no reordering of a bank changes a tie. The bias decides the
// choice only: weights come from the scores, added in double in the order of the slots:
// weight = float(score / (sum + 1e-20) * routed_scaling_factor), or float(score * factor) without
// renormalisation.
//
// A bias of -infinity masks an expert: it is never chosen, even if fewer than k remain; the slots
// left over hold -1 and weight 0. A NaN precedes every number: it is chosen, makes the weights NaN,
// and so reaches the check on the logits instead of hiding.
//
// `reference` takes libm's exp: scores, and with them selections, may differ by one ulp.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/elementary.h"
#include "schema/host_device.h"

namespace k3 {

struct RouterRule {
  int64_t experts_per_token = 0;  // k, at least 1
  bool renormalize = false;
  double routed_scaling_factor = 0;
};

// Whether expert a comes before expert b. Total for distinct source ids, also with NaNs.
K3_HOST_DEVICE inline bool exact_precedes(float selection_a, int32_t source_a, float selection_b,
                                          int32_t source_b) {
  const bool a_is_nan = selection_a != selection_a;
  const bool b_is_nan = selection_b != selection_b;
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && selection_a != selection_b) return selection_a > selection_b;
  return source_a < source_b;
}

// Fills weights [k] of the `chosen` experts in slots [k], and what is left over.
K3_HOST_DEVICE inline void exact_route_weights(const RouterRule& rule, const float* scores,
                                               int64_t chosen, int32_t* slots, float* weights) {
  double sum = 0;
  for (int64_t i = 0; i < chosen; ++i) sum += static_cast<double>(scores[slots[i]]);
  const double divisor = rule.renormalize ? sum + 1e-20 : 1.0;
  for (int64_t i = 0; i < chosen; ++i) {
    weights[i] = static_cast<float>(static_cast<double>(scores[slots[i]]) / divisor *
                                    rule.routed_scaling_factor);
  }
  for (int64_t i = chosen; i < rule.experts_per_token; ++i) {
    slots[i] = -1;
    weights[i] = 0;
  }
}

// Fills slots [k] and weights [k] of one token from scores, bias and source_ids [experts].
// Insertion into a sorted list: almost every expert is turned away by one comparison with its end.
K3_HOST_DEVICE inline void exact_route(const RouterRule& rule, const float* scores,
                                       const float* bias, const int32_t* source_ids,
                                       int64_t experts, int32_t* slots, float* weights) {
  const int64_t k = rule.experts_per_token;
  float* selections = weights;  // until the choice is made
  int64_t chosen = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (bias[e] == -INFINITY) continue;
    const float selection = scores[e] + bias[e];
    int64_t at = chosen;
    while (at > 0 && exact_precedes(selection, source_ids[e], selections[at - 1],
                                    source_ids[slots[at - 1]])) {
      --at;
    }
    if (at == k) continue;
    if (chosen < k) ++chosen;
    for (int64_t i = chosen - 1; i > at; --i) {
      slots[i] = slots[i - 1];
      selections[i] = selections[i - 1];
    }
    slots[at] = static_cast<int32_t>(e);
    selections[at] = selection;
  }
  exact_route_weights(rule, scores, chosen, slots, weights);
}

}  // namespace k3

namespace k3::reference {
// logits [tokens, experts]; bias, source_ids [experts] in the order of the bank; slots (positions
// in the bank), weights [tokens, k]; scores [tokens, experts] receives sigmoid(logits) unless null.
void route(const RouterRule& rule, const float* logits, const float* bias,
           const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
           float* weights, float* scores);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void route(const RouterRule& rule, const float* logits, const float* bias,
           const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
           float* weights, float* scores);
}  // namespace k3::cpu
