#include "schema/model_tensors.h"

#include <utility>

namespace k3 {
namespace {

class TensorList {
 public:
  // Names and families of the following tensors: `prefix` + the name given to add().
  void start(std::string prefix, Family family) {
    prefix_ = std::move(prefix);
    family_ = family;
  }
  // A tensor that stays in its source precision.
  void add(const char* name, const Shape& shape) {
    tensors_.push_back({prefix_ + name, family_, shape, false});
  }
  void add_matrix(const char* name, int64_t rows, int64_t cols) {
    tensors_.push_back({prefix_ + name, family_, {rows, cols}, true});
  }
  void add_gated_mlp(int64_t width, int64_t inner) {
    add_matrix("gate_proj.weight", inner, width);
    add_matrix("up_proj.weight", inner, width);
    add_matrix("down_proj.weight", width, inner);
  }
  std::vector<ExpectedTensor> take() { return std::move(tensors_); }

 private:
  std::string prefix_;
  Family family_ = Family::kNorm;
  std::vector<ExpectedTensor> tensors_;
};

void add_kda(const ModelConfig& config, const std::string& layer, TensorList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t width = config.kda_width();
  list.start(layer + "self_attn.", Family::kKda);
  list.add_matrix("q_proj.weight", width, hidden);
  list.add_matrix("k_proj.weight", width, hidden);
  list.add_matrix("v_proj.weight", width, hidden);
  list.add("q_conv1d.weight", {width, 1, config.conv_kernel});
  list.add("k_conv1d.weight", {width, 1, config.conv_kernel});
  list.add("v_conv1d.weight", {width, 1, config.conv_kernel});
  list.add("f_a_proj.weight", {config.kda_head_dim, hidden});
  list.add("f_b_proj.weight", {width, config.kda_head_dim});
  list.add("b_proj.weight", {config.kda_heads, hidden});
  list.add("A_log", {config.kda_heads});
  list.add("dt_bias", {width});
  list.add("o_norm.weight", {config.kda_head_dim});
  if (config.kda_gate_rank) {
    list.add("g_a_proj.weight", {*config.kda_gate_rank, hidden});
    list.add("g_b_proj.weight", {width, *config.kda_gate_rank});
  } else {
    list.add_matrix("g_proj.weight", width, hidden);
  }
  list.add_matrix("o_proj.weight", hidden, width);
}

void add_mla(const ModelConfig& config, const std::string& layer, TensorList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t queries = config.mla_heads * config.qk_head_dim();
  const int64_t values = config.mla_heads * config.v_head_dim;
  list.start(layer + "self_attn.", Family::kMla);
  if (config.q_lora_rank) {
    list.add_matrix("q_a_proj.weight", *config.q_lora_rank, hidden);
    list.add("q_a_layernorm.weight", {*config.q_lora_rank});
    list.add_matrix("q_b_proj.weight", queries, *config.q_lora_rank);
  } else {
    list.add_matrix("q_proj.weight", queries, hidden);
  }
  list.add_matrix("kv_a_proj_with_mqa.weight", config.kv_lora_rank + config.qk_extra_dim, hidden);
  list.add("kv_a_layernorm.weight", {config.kv_lora_rank});
  list.add("kv_b_proj.weight",
           {config.mla_heads * (config.qk_content_dim + config.v_head_dim), config.kv_lora_rank});
  if (config.mla_output_gate) list.add_matrix("g_proj.weight", values, hidden);
  list.add_matrix("o_proj.weight", hidden, values);
}

void add_moe(const ModelConfig& config, const std::string& layer, TensorList& list) {
  const int64_t hidden = config.hidden_size;
  const std::string moe = layer + "block_sparse_moe.";
  // One row per expert of the checkpoint, also where the pack keeps fewer: rows go by source id.
  list.start(moe, Family::kRouter);
  list.add("gate.weight", {config.experts, hidden});
  list.add("gate.e_score_correction_bias", {config.experts});
  list.start(moe, Family::kLatent);
  if (config.latent_size) {
    list.add_matrix("routed_expert_down_proj.weight", *config.latent_size, hidden);
    list.add_matrix("routed_expert_up_proj.weight", hidden, *config.latent_size);
  }
  if (config.latent_norm) list.add("routed_expert_norm.weight", {config.expert_width()});
  if (config.shared_experts > 0) {
    list.start(moe + "shared_experts.", Family::kSharedExperts);
    list.add_gated_mlp(hidden, config.shared_intermediate_size());
  }
}

void add_layer(const ModelConfig& config, size_t index, TensorList& list) {
  const int64_t hidden = config.hidden_size;
  const std::string layer = "model.layers." + std::to_string(index) + ".";
  list.start(layer, Family::kNorm);
  list.add("input_layernorm.weight", {hidden});
  list.add("post_attention_layernorm.weight", {hidden});
  if (config.attention_residual_block) {
    list.start(layer, Family::kAttentionResidual);
    list.add("self_attention_res_norm.weight", {hidden});
    list.add("self_attention_res_proj.weight", {1, hidden});
    list.add("mlp_res_norm.weight", {hidden});
    list.add("mlp_res_proj.weight", {1, hidden});
  }
  const LayerConfig& kinds = config.layers[index];
  if (kinds.attention == AttentionKind::kKda) {
    add_kda(config, layer, list);
  } else {
    add_mla(config, layer, list);
  }
  if (kinds.ffn == FfnKind::kMoe) {
    add_moe(config, layer, list);
  } else {
    list.start(layer + "mlp.", Family::kDenseFfn);
    list.add_gated_mlp(hidden, config.dense_intermediate_size);
  }
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  TensorList list;
  for (size_t index = 0; index < config.layers.size(); ++index) add_layer(config, index, list);
  list.start("", Family::kEmbedding);
  list.add("model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  list.start("", Family::kHead);
  list.add_matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  list.start("", Family::kNorm);
  list.add("model.norm.weight", {config.hidden_size});
  if (config.attention_residual_block) {
    list.start("", Family::kAttentionResidual);
    list.add("model.output_attn_res_norm.weight", {config.hidden_size});
    list.add("model.output_attn_res_proj.weight", {1, config.hidden_size});
  }
  return list.take();
}

}  // namespace k3
