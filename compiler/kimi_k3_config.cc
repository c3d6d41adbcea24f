// What K3 has beside the fields of kimi_config.h, and with one implemented value where it could
// have another: see there.
#include "compiler/kimi_k3_config.h"

#include <string>

#include "compiler/kimi_config.h"
#include "schema/formats/mxfp4.h"

namespace k3 {

ConfigObject text_config(const ConfigFile& file) {
  return file.root().has("text_config") ? file.root().object("text_config") : file.root();
}

ModelConfig read_kimi_k3_config(const ConfigFile& file) {
  const ConfigObject text = text_config(file);
  ModelConfig config = read_kimi_config(file.root(), text);
  config.attention_residual_block = text.size("attn_res_block_size");

  const ConfigObject linear = text.object("linear_attn_config");
  config.decay_lower_bound = linear.number("gate_lower_bound");
  if (*config.decay_lower_bound >= 0) {
    linear.fail("gate_lower_bound", "is not below 0, so states would not decay");
  }
  linear.require_boolean("use_full_rank_gate", true);
  config.q_lora_rank = text.size("q_lora_rank");
  config.mla_output_gate = text.boolean("mla_use_output_gate");

  text.require_text("hidden_act", "situ");
  config.activation = Activation::kSitu;
  config.situ_beta = text.positive_number("activation_situ_beta");
  config.situ_linear_beta = text.positive_number("activation_situ_linear_beta");
  config.latent_size = text.size("routed_expert_hidden_size");
  config.latent_norm = text.boolean("latent_moe_use_norm");
  text.require_text("topk_method", "noaux_tc");  // the correction bias picks and does not weigh
  return config;
}

void check_kimi_k3_quantization(const ConfigFile& file, const ModelConfig& config) {
  constexpr const char* kPacked = "mxfp4-pack-quantized";
  const ConfigObject text = text_config(file);
  const ConfigObject quantization = text.object("quantization_config");
  quantization.require_text("format", kPacked);
  const ConfigObject group = quantization.only_object_of("config_groups");
  group.require_text("format", kPacked);
  const ConfigObject weights = group.object("weights");
  weights.require_integer("num_bits", 4);
  weights.require_text("type", "float");
  weights.require_integer("group_size", kMxfp4GroupInputs);
  weights.require_text("strategy", "group");
  weights.require_boolean("symmetric", true);
  weights.require_text("scale_dtype", "torch.uint8");  // E8M0 bytes, not numbers

  const auto check_width = [&text](const char* name, int64_t width) {
    if (width % kMxfp4GroupInputs == 0) return;
    text.fail(name, "is " + std::to_string(width) + ", expected a multiple of " +
                        std::to_string(kMxfp4GroupInputs) + " for mxfp4 experts");
  };
  check_width("moe_intermediate_size", config.expert_intermediate_size);
  check_width("routed_expert_hidden_size", config.expert_width());
}

}  // namespace k3
