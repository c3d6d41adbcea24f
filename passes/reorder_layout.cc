// reorder_layout: where codes lie inside each extent, and the order of experts in a bank.
//
// A format has one layout that every kernel reads in place: rows as they are for floats, blocks of
// 160 for integers, bands for experts. On request the scales of mxfp4 experts take half a byte
// each, in every bank whose experts all allow it; that must be known here, where sizes are made, so
// their scale planes are read now, 6 % of the experts' bytes. Experts go hot first, so that one
// read of a bank's start brings the most used ones: by the prune plan's scores, those it drops
// last. Without a plan none is known to be hotter, and the checkpoint's own numbering is the order.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "passes/pass.h"
#include "passes/scale_spans.h"

namespace k3 {
namespace {

void choose_bank_layout(const Model& model, Bank& bank, PassContext& context) {
  bank.layout = Layout::kExpertBands;
  if (context.options.reorder_layout.experts == ExpertLayout::kExact) return;
  if (bank.format != Format::kMxfp4) {
    context.decide(bank_subject(bank), std::string(layout_name(bank.layout)),
                   "compact was asked for, but only mxfp4 has scales; the number counts them", 0);
    return;
  }
  const auto misfits = find_compact_misfits(model, bank, context.progress);
  if (misfits.empty()) {
    bank.layout = Layout::kExpertBandsCompact;
    context.decide(bank_subject(bank), std::string(layout_name(bank.layout)),
                   "asked for, and every scale fits; the number is stored bytes per scale", 0.5);
    return;
  }
  context.decide(bank_subject(bank), std::string(layout_name(bank.layout)),
                 "compact was asked for, but scales of some experts lie outside the 16 exponents "
                 "from the least; the number counts these experts",
                 static_cast<double>(misfits.size()));
}

// Each expert's place in its layer's order: the plan's, or the checkpoint's.
void order_bank(const std::optional<PrunePlan>& plan, Bank& bank) {
  std::vector<size_t> place(static_cast<size_t>(bank.source_experts));
  std::iota(place.begin(), place.end(), size_t{0});
  if (plan) {
    const PlanLayer& layer = *plan->find(bank.layer);
    size_t next = 0;
    for (const int32_t id : layer.kept) place[static_cast<size_t>(id)] = next++;
    for (const int32_t id : layer.dropped) place[static_cast<size_t>(id)] = next++;
  }
  std::sort(bank.experts.begin(), bank.experts.end(), [&](const Expert& a, const Expert& b) {
    return place[static_cast<size_t>(a.source_id)] < place[static_cast<size_t>(b.source_id)];
  });
}

}  // namespace

void choose_layouts(Model& model, PassContext& context) {
  for (TrunkTensor& tensor : model.trunk) {
    tensor.layout = lies_in_blocks160(tensor.format) ? Layout::kBlocks160 : Layout::kRowMajor;
  }
  int64_t compact_banks = 0;
  for (Bank& bank : model.banks) {
    choose_bank_layout(model, bank, context);
    compact_banks += bank.layout == Layout::kExpertBandsCompact ? 1 : 0;
    order_bank(context.results.plan, bank);
    context.decide(bank_subject(bank),
                   context.results.plan ? "order by falling score" : "order by source id",
                   context.results.plan ? "the prune plan; the number is the count of experts"
                                        : "no routing trace; the number is the count of experts",
                   static_cast<double>(bank.experts.size()));
  }
  context.record("compact banks", static_cast<double>(compact_banks));
  const auto banks = static_cast<int64_t>(model.banks.size());
  if (context.options.reorder_layout.experts == ExpertLayout::kCompact && compact_banks < banks) {
    context.note(std::to_string(banks - compact_banks) + " of " + std::to_string(banks) +
                 " banks keep their scales as they are, because not all of them fit half a byte");
  }
}

}  // namespace k3
