// reorder_layout: where codes lie inside each extent, and the order of experts in a bank.
//
// A format has one layout that every kernel reads in place: rows as they are for floats, blocks of
// 160 for integers, bands for experts. Experts go hot first, so that one read of a bank's start
// brings the most used ones; without a routing trace none is known to be hotter, and the
// checkpoint's own numbering is the order.
#include <algorithm>

#include "passes/pass.h"

namespace k3 {

void choose_layouts(Model& model, PassContext& context) {
  for (TrunkTensor& tensor : model.trunk) {
    tensor.layout = lies_in_blocks160(tensor.format) ? Layout::kBlocks160 : Layout::kRowMajor;
  }
  for (Bank& bank : model.banks) {
    bank.layout = Layout::kExpertBands;
    std::sort(bank.experts.begin(), bank.experts.end(),
              [](const Expert& a, const Expert& b) { return a.source_id < b.source_id; });
    context.decide(bank_subject(bank), "order by source id",
                   "no routing trace; the number is the count of experts",
                   static_cast<double>(bank.experts.size()));
  }
}

}  // namespace k3
