// ternary_trunk: the format of every tensor that is not a routed expert.
//
// Two families of choices stand open: the trunk's matrices and the head. All else stays as it is in
// the checkpoint, because it is small (norms, routers, gates: 1.5 % of K3's trunk) and every error
// in it is felt by each token, or because its product has no integer form (kv_b_proj, used
// transposed).
#include "passes/pass.h"
#include "passes/planned_extent.h"

namespace k3 {
namespace {

Format source_format(Dtype dtype) {
  return dtype == Dtype::kF32 ? Format::kF32 : Format::kBf16;
}

bool asks_for_int8(const TrunkTensor& tensor, const TernaryTrunkOptions& options) {
  if (tensor.family == Family::kHead) return options.head == Precision::kInt8;
  return in_trunk(tensor.family) && options.trunk == Precision::kInt8;
}

}  // namespace

void choose_formats(Model& model, PassContext& context) {
  int64_t quantized_tensors = 0;
  int64_t quantized_parameters = 0;
  int64_t quantized_bytes = 0;
  for (TrunkTensor& tensor : model.trunk) {
    const bool asked = asks_for_int8(tensor, context.options.ternary_trunk);
    const int64_t parameters = tensor.shape.elements().value_or(0);
    if (asked && may_be_int8(tensor)) {
      tensor.format = Format::kInt8;
      tensor.layout = Layout::kBlocks160;
      const int64_t bytes = planned_bytes(tensor);
      ++quantized_tensors;
      quantized_parameters += parameters;
      quantized_bytes += bytes;
      context.decide(tensor.name, "int8", "asked for; the number is stored bits per weight",
                     8.0 * static_cast<double>(bytes) / static_cast<double>(parameters));
    } else {
      tensor.format = source_format(tensor.dtype);
      tensor.layout = Layout::kRowMajor;
      context.decide(tensor.name, std::string(format_name(tensor.format)),
                     asked ? "must stay exact; the number is stored bits per weight"
                           : "source precision; the number is stored bits per weight",
                     8.0 * static_cast<double>(dtype_bytes(tensor.dtype)));
    }
  }
  context.record("int8 tensors", static_cast<double>(quantized_tensors));
  context.record("int8 parameters", static_cast<double>(quantized_parameters));
  context.record("int8 bytes", static_cast<double>(quantized_bytes));
}

}  // namespace k3
