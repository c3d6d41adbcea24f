#include "compiler/pack_plan.h"

#include "passes/planned_extent.h"
#include "schema/hash.h"

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
                          static_cast<uint32_t>(expert.source_id), expert.least_exponent,
                          expert.cold});
  }
  return to;
}

// What decided which experts are there and in which order: the plan by its content, and the traces
// that it was made from.
void add_plan(const PassResults& results, const Options& options,
              std::vector<std::pair<std::string, std::string>>& recorded) {
  if (!results.plan) return;
  const std::string text = format_prune_plan(*results.plan);
  recorded.emplace_back("expert score", results.plan->score);
  recorded.emplace_back("prune plan", hex_digits(xxh3(std::as_bytes(std::span(text)))));
  recorded.emplace_back("cold", options.prune_experts.keep_cold ? "keep" : "drop");
  for (size_t i = 0; i < results.plan->traces.size(); ++i) {
    recorded.emplace_back("trace " + std::to_string(i), hex_digits(results.plan->traces[i].xxh3));
  }
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
  add_plan(results, options, index.provenance.options);
  index.provenance.passes = results.passes;
  for (const PlannedReport& report : results.reports) {
    index.provenance.reports.push_back({report.name, report.raw_bytes, report.extent});
  }
  return index;
}

}  // namespace k3
