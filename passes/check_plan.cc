#include "passes/check_plan.h"

#include <algorithm>
#include <vector>

#include "passes/pass.h"
#include "passes/planned_extent.h"

namespace k3 {
namespace {

void check_tensor(const TrunkTensor& tensor, Problems& problems) {
  if (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kBf16) {
    problems.add("tensor ", tensor.name, ": is ", dtype_name(tensor.dtype),
                 ", expected F32 or BF16");
    return;
  }
  if (lies_in_blocks160(tensor.format)) {
    const std::string_view format = format_name(tensor.format);
    if (!may_be_quantized(tensor)) {
      problems.add("tensor ", tensor.name, ": is to be ", format, ", but must stay as it is");
    }
    if (tensor.shape.rank() != 2) {
      problems.add("tensor ", tensor.name, ": is to be ", format, ", but has shape ", tensor.shape);
    }
  } else if (tensor.tuned && tensor.format == Format::kF32) {
    // A gain as tuned; apply_tuning has checked which tensor it is for.
  } else if (tensor.format != source_format(tensor)) {
    problems.add("tensor ", tensor.name, ": is ", dtype_name(tensor.dtype),
                 tensor.folding.changes_values() ? ", rotated," : "", " and is to be ",
                 format_name(tensor.format), ", expected ", format_name(source_format(tensor)));
  }
}

void check_bank(const ModelConfig& config, const Bank& bank, Problems& problems) {
  if (bank.format != bank.source_format) {
    problems.add(bank_subject(bank), ": is ", format_name(bank.source_format), " and is to be ",
                 format_name(bank.format), ": experts are never re-encoded");
  }
  const auto kept = static_cast<int64_t>(bank.experts.size());
  const auto left_out = static_cast<int64_t>(bank.left_out.size());
  const int64_t hot = std::count_if(bank.experts.begin(), bank.experts.end(),
                                    [](const Expert& expert) { return !expert.cold; });
  if (hot < config.experts_per_token) {
    problems.add(bank_subject(bank), ": keeps ", hot, " experts, a token needs ",
                 config.experts_per_token);
  }
  if (kept + left_out != bank.source_experts) {
    problems.add(bank_subject(bank), ": keeps ", kept, " and leaves out ", left_out, " of ",
                 bank.source_experts, " experts");
  }
  std::vector<bool> seen(static_cast<size_t>(std::max<int64_t>(0, bank.source_experts)));
  for (const Expert& expert : bank.experts) {
    const auto id = static_cast<size_t>(expert.source_id);
    if (id >= seen.size() || seen[id]) {
      problems.add(bank_subject(bank), ": expert ", expert.source_id,
                   " is there twice or not in the source");
      continue;
    }
    seen[id] = true;
  }
}

void check_extents(const Model& model, const PassResults& results, Problems& problems) {
  int64_t expected = kExtentAlignment;
  const auto check = [&](const Extent& extent, const std::string& subject, int64_t bytes) {
    if (extent.offset_bytes != expected || extent.length_bytes != bytes) {
      problems.add(subject, ": extent is ", extent.offset_bytes, " + ", extent.length_bytes,
                   ", expected ", expected, " + ", bytes);
    }
    expected = align_up(extent.end_bytes(), kExtentAlignment);
  };
  for (const TrunkTensor& tensor : model.trunk) {
    check(tensor.extent, "tensor " + tensor.name, planned_bytes(tensor));
  }
  for (const bool cold : {false, true}) {
    for (const Bank& bank : model.banks) {
      const int64_t bytes = bank_bands(model.config, bank).extent_bytes();
      for (const Expert& expert : bank.experts) {
        if (expert.cold == cold) check(expert.extent, bank_subject(bank), bytes);
      }
    }
  }
  for (const SideFile& file : model.side_files) {
    check(file.extent, "side file " + file.name, static_cast<int64_t>(file.compressed.size()));
  }
  for (const PlannedReport& report : results.reports) {
    check(report.extent, "report " + report.name, static_cast<int64_t>(report.stored.size()));
  }
}

}  // namespace

void check_plan(const Model& model, const PassResults& results, Problems& problems) {
  const bool has_offsets = results.data_end_bytes != 0;
  const bool has_formats = results.passes.size() > 2;  // from ternary_trunk on
  for (const TrunkTensor& tensor : model.trunk) {
    if (has_formats) check_tensor(tensor, problems);
  }
  for (const Bank& bank : model.banks) check_bank(model.config, bank, problems);
  if (has_offsets && problems.empty()) check_extents(model, results, problems);
}

}  // namespace k3
