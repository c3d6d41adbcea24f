#include "compiler/config_fields.h"

#include <optional>

#include "compiler/quantities.h"

namespace k3 {
namespace {

std::string text_of(int64_t value) {
  return std::to_string(value);
}
std::string text_of(double value) {
  return shortest(value);
}
std::string text_of(bool value) {
  return value ? "yes" : "no";
}
template <class Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? text_of(*value) : "none";
}

}  // namespace

std::vector<std::pair<std::string_view, std::string>> config_fields(const ModelConfig& config) {
  const auto rotation = [&config](auto member) {
    return config.rotation ? std::to_string(*config.rotation.*member) : "none";
  };
  return {
      {"hidden_size", text_of(config.hidden_size)},
      {"vocab_size", text_of(config.vocab_size)},
      {"layers", layer_letters(config)},
      {"rms_norm_epsilon", text_of(config.rms_norm_epsilon)},
      {"low_rank_norm_epsilon", text_of(config.low_rank_norm_epsilon)},
      {"qk_norm_epsilon", text_of(config.qk_norm_epsilon)},
      {"kda_heads", text_of(config.kda_heads)},
      {"kda_head_dim", text_of(config.kda_head_dim)},
      {"conv_kernel", text_of(config.conv_kernel)},
      {"decay_lower_bound", text_of(config.decay_lower_bound)},
      {"kda_gate_rank", text_of(config.kda_gate_rank)},
      {"mla_heads", text_of(config.mla_heads)},
      {"q_lora_rank", text_of(config.q_lora_rank)},
      {"kv_lora_rank", text_of(config.kv_lora_rank)},
      {"qk_content_dim", text_of(config.qk_content_dim)},
      {"qk_extra_dim", text_of(config.qk_extra_dim)},
      {"v_head_dim", text_of(config.v_head_dim)},
      {"mla_output_gate", text_of(config.mla_output_gate)},
      {"dense_intermediate_size", text_of(config.dense_intermediate_size)},
      {"activation", config.activation == Activation::kSitu ? "situ" : "silu"},
      {"situ_beta", text_of(config.situ_beta)},
      {"situ_linear_beta", text_of(config.situ_linear_beta)},
      {"experts", text_of(config.experts)},
      {"experts_per_token", text_of(config.experts_per_token)},
      {"expert_intermediate_size", text_of(config.expert_intermediate_size)},
      {"shared_experts", text_of(config.shared_experts)},
      {"latent_size", text_of(config.latent_size)},
      {"latent_norm", text_of(config.latent_norm)},
      {"renormalize", text_of(config.renormalize)},
      {"routed_scaling_factor", text_of(config.routed_scaling_factor)},
      {"attention_residual_block", text_of(config.attention_residual_block)},
      {"bos_token_id", text_of(config.bos_token_id)},
      {"eos_token_id", text_of(config.eos_token_id)},
      {"pad_token_id", text_of(config.pad_token_id)},
      {"rotation seed", rotation(&RotatedBasis::seed)},
      {"rotation stream_block", rotation(&RotatedBasis::stream_block)},
      {"rotation query_block", rotation(&RotatedBasis::query_block)},
      {"rotation kda_block", rotation(&RotatedBasis::kda_block)},
      {"rotation mla_block", rotation(&RotatedBasis::mla_block)},
      {"rotation dense_block", rotation(&RotatedBasis::dense_block)},
      {"rotation shared_block", rotation(&RotatedBasis::shared_block)},
      {"rotation latent_block", rotation(&RotatedBasis::latent_block)},
  };
}

std::string layer_letters(const ModelConfig& config) {
  std::string letters;
  for (const LayerConfig& layer : config.layers) {
    const char letter = layer.attention == AttentionKind::kKda ? 'K' : 'M';
    letters += layer.ffn == FfnKind::kDense ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return letters;
}

}  // namespace k3
