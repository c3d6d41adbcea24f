// prune_experts: which experts each bank keeps. Without a measured routing trace there is no ground
// to leave one out, so all stay, and the pack says so bank by bank.
#include "passes/pass.h"

namespace k3 {

void choose_experts(Model& model, PassContext& context) {
  int64_t kept = 0;
  int64_t left_out = 0;
  for (const Bank& bank : model.banks) {
    const auto experts = static_cast<int64_t>(bank.experts.size());
    kept += experts;
    left_out += static_cast<int64_t>(bank.left_out.size());
    context.decide(bank_subject(bank),
                   "keep " + std::to_string(experts) + " of " + std::to_string(bank.source_experts),
                   "no routing trace; the number is the share of experts kept",
                   static_cast<double>(experts) / static_cast<double>(bank.source_experts));
  }
  context.record("experts kept", static_cast<double>(kept));
  context.record("experts left out", static_cast<double>(left_out));
}

}  // namespace k3
