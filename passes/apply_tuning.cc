// tuning: block scales and norm gains from a .k3tune file, in the place of those that rounding, the
// solver or the checkpoint have, and codes that were trained with them. Where codes stay, the file
// is worth nothing for others than those it was tuned with: which those are its payload hash says,
// and encode compares it with what this compile would have made without the file
// (compiler/untuned_payload.h).
#include <string>

#include "passes/pass.h"
#include "passes/planned_extent.h"
#include "schema/hash.h"
#include "schema/tuning.h"

namespace k3 {
namespace {

constexpr std::string_view kGainEnding = "norm.weight";

TrunkTensor* find(Model& model, std::string_view name) {
  for (TrunkTensor& tensor : model.trunk) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace

void apply_tuning(Model& model, PassContext& context) {
  const std::string& path = context.options.tuning.path;
  if (path.empty()) return;
  model.tuning = std::make_shared<TuningReader>(path);
  const TuningReader& tuning = *model.tuning;
  int64_t scales = 0;
  int64_t gains = 0;
  int64_t codes = 0;
  for (int64_t i = 0; i < tuning.tensors(); ++i) {
    const std::string name(tuning.name(i));
    TrunkTensor* tensor = find(model, tuning.target(i));
    if (tensor == nullptr) {
      context.problems.add(path, ": tensor ", name, ": is not in the model");
    } else if (tuning.has_codes(i) && lies_in_blocks160(tensor->format)) {
      if (tuning.shape(i) != tensor->shape) {
        context.problems.add(path, ": tensor ", name, ": shape is ", tuning.shape(i), ", expected ",
                             tensor->shape);
        continue;
      }
      tensor->tuned_codes = i;
      ++codes;
      context.decide(tensor->name, "trained codes", "from --tuned; the number is how many",
                     static_cast<double>(*tensor->shape.elements()));
    } else if (lies_in_blocks160(tensor->format)) {
      const Blocks160 place{tensor->format, tensor->shape[0], tensor->shape[1]};
      const Shape expected{place.rows, place.blocks_per_row()};
      if (tuning.shape(i) != expected) {
        context.problems.add(path, ": tensor ", name, ": shape is ", tuning.shape(i),
                             ", its scales have ", expected);
        continue;
      }
      tensor->tuned = i;
      ++scales;
      context.decide(name, "tuned scales", "from --tuned; the number is how many",
                     static_cast<double>(place.rows * place.blocks_per_row()));
    } else if (tensor->shape.rank() == 1 && name.ends_with(kGainEnding)) {
      if (tuning.shape(i) != tensor->shape) {
        context.problems.add(path, ": tensor ", name, ": shape is ", tuning.shape(i), ", expected ",
                             tensor->shape);
        continue;
      }
      tensor->tuned = i;
      tensor->format = Format::kF32;  // as tuned, not rounded to the source's precision
      ++gains;
      context.decide(name, "tuned gain", "from --tuned; the number is its width",
                     static_cast<double>(tensor->shape[0]));
    } else {
      context.problems.add(path, ": tensor ", name, ": is ", format_name(tensor->format), " ",
                           tensor->shape, ", expected a matrix with block scales or a norm's gain");
    }
  }
  for (const TrunkTensor& tensor : model.trunk) {
    if (!tensor.tuned_codes || tensor.tuned) continue;
    context.problems.add(path, ": tensor ", tensor.name, kTunedCodesEnding,
                         ": are codes without scales, expected ", tensor.name, " beside them");
  }
  context.record("tuned matrices", static_cast<double>(scales));
  context.record("tuned norms", static_cast<double>(gains));
  context.record("matrices with trained codes", static_cast<double>(codes));
  context.results.inputs.emplace_back("tuning", hex_digits(tuning.file_xxh3()));
  context.results.inputs.emplace_back("tuned pack", hex_digits(tuning.pack_payload_xxh3()));
}

}  // namespace k3
