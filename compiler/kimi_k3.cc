// Which format the experts have is decided by which tensors exist: the ignore list of the released
// quantization_config is not true of three kinds of matrices.
#include "compiler/kimi_k3.h"

#include <array>

#include "compiler/import_tensors.h"
#include "compiler/kimi_k3_config.h"
#include "compiler/kimi_k3_tensors.h"

namespace k3 {
namespace {

constexpr std::string_view kPrefix = "language_model.";
constexpr std::array kLeftOut = {LeftOutPart{"vision_tower.", Family::kVision},
                                 LeftOutPart{"mm_projector.", Family::kProjector}};

}  // namespace

bool looks_like_kimi_k3(const Checkpoint& checkpoint) {
  for (const char* feature : {"attn_res_block_size", "routed_expert_hidden_size"}) {
    if (text_config(checkpoint.config()).has(feature)) return true;
  }
  return any_name(checkpoint, [](std::string_view name) {
    return name.ends_with("output_attn_res_proj.weight");
  });
}

Model import_kimi_k3(const Checkpoint& checkpoint) {
  const ModelConfig config = read_kimi_k3_config(checkpoint.config());
  TensorRules rules{
      .family = "kimi-k3", .prefix = "", .trunk_rows = kimi_k3_trunk_rows(), .left_out = kLeftOut};
  if (any_name(checkpoint, [](std::string_view name) { return name.starts_with(kPrefix); })) {
    rules.prefix = kPrefix;
  }
  if (any_name(checkpoint,
               [](std::string_view name) { return name.ends_with(".weight_packed"); })) {
    rules.expert_format = Format::kMxfp4;
    check_kimi_k3_quantization(checkpoint.config(), config);
  }
  return import_tensors(checkpoint, rules, config);
}

}  // namespace k3
