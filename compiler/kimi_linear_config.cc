// What tells Kimi-Linear from K3 is mostly what its config does not say. A field of K3's that turns
// up here asks for a mixture of the two families, which nobody has released and nobody has run, so
// it is refused rather than ignored.
//
// Two things are in no field. The rank of KDA's output gate is the head's dimension in the released
// modelling code, as is that of the decay's projections. And the released config leaves out
// topk_method, for which that code knows one value.
#include "compiler/kimi_linear_config.h"

#include "compiler/kimi_config.h"

namespace k3 {

ModelConfig read_kimi_linear_config(const ConfigFile& file) {
  const ConfigObject root = file.root();
  ModelConfig config = read_kimi_config(root, root);
  const ConfigObject linear = root.object("linear_attn_config");
  linear.require_off("gate_lower_bound");  // the decay has no bound: softplus
  linear.require_off("use_full_rank_gate");
  config.kda_gate_rank = config.kda_head_dim;
  root.require_off("q_lora_rank");
  root.require_off("mla_use_output_gate");
  root.require_off("attn_res_block_size");
  root.require_off("routed_expert_hidden_size");
  root.require_off("latent_moe_use_norm");
  root.require_off("quantization_config");
  root.require_text("hidden_act", "silu");
  config.activation = Activation::kSilu;
  if (root.has("topk_method")) root.require_text("topk_method", "noaux_tc");
  return config;
}

}  // namespace k3
