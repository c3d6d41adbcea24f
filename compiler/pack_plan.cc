#include "compiler/pack_plan.h"

#include "passes/planned_extent.h"

namespace k3 {
namespace {

Extent with_length(Extent extent, int64_t length_bytes) {
  extent.length_bytes = length_bytes;
  return extent;
}

PackBank planned_bank(const ModelConfig& config, const Bank& bank) {
  PackBank to;
  to.layer = bank.layer;
  to.format = bank.format;
  to.layout = bank.layout;
  to.source_experts = bank.source_experts;
  to.fixed_point = bank.fixed_point;
  const int64_t expert_bytes = bank_bands(config, bank).extent_bytes();
  for (const Expert& expert : bank.experts) {
    to.experts.push_back({with_length(expert.extent, expert_bytes),
                          static_cast<uint32_t>(expert.source_id), expert.least_exponent, false});
  }
  return to;
}

}  // namespace

PackIndex planned_index(const Model& model, const PassResults& results, const Options& options) {
  PackIndex index;
  index.content.config = model.config;
  for (const TrunkTensor& tensor : model.trunk) {
    index.content.tensors.push_back({tensor.name, tensor.family, tensor.format, tensor.layout,
                                     tensor.shape,
                                     with_length(tensor.extent, planned_bytes(tensor))});
  }
  for (const Bank& bank : model.banks) {
    index.content.banks.push_back(planned_bank(model.config, bank));
  }
  for (const SideFile& file : model.side_files) {
    index.content.side_files.push_back(
        {file.name, static_cast<int64_t>(file.bytes.size()), file.extent});
  }
  index.provenance.compiler = kCompilerName;
  index.provenance.options = canonical_options(options);
  index.provenance.options.insert(index.provenance.options.end(), results.inputs.begin(),
                                  results.inputs.end());
  index.provenance.passes = results.passes;
  for (const PlannedReport& report : results.reports) {
    index.provenance.reports.push_back({report.name, report.raw_bytes, report.extent});
  }
  return index;
}

}  // namespace k3
