#include "schema/kimi_k3_release.h"

namespace k3 {

ModelConfig kimi_k3_release() {
  ModelConfig config{.hidden_size = 7168,
                     .vocab_size = 163840,
                     .layers = {},
                     .rms_norm_epsilon = 1e-5,
                     .low_rank_norm_epsilon = 1e-5,
                     .qk_norm_epsilon = 1e-6,
                     .kda_heads = 96,
                     .kda_head_dim = 128,
                     .conv_kernel = 4,
                     .decay_lower_bound = -5.0,
                     .kda_gate_rank = {},
                     .mla_heads = 96,
                     .q_lora_rank = 1536,
                     .kv_lora_rank = 512,
                     .qk_content_dim = 128,
                     .qk_extra_dim = 64,
                     .v_head_dim = 128,
                     .mla_output_gate = true,
                     .dense_intermediate_size = 33792,
                     .activation = Activation::kSitu,
                     .situ_beta = 4.0,
                     .situ_linear_beta = 25.0,
                     .experts = 896,
                     .experts_per_token = 16,
                     .expert_intermediate_size = 3072,
                     .shared_experts = 2,
                     .latent_size = 3584,
                     .latent_norm = true,
                     .renormalize = true,
                     .routed_scaling_factor = 1.0,
                     .attention_residual_block = 12,
                     .bos_token_id = 163584,
                     .eos_token_id = 163586,
                     .pad_token_id = 163839};
  // Every fourth layer and the last one are MLA; the first one's FFN is dense.
  constexpr int kLayers = 93;
  for (int i = 0; i < kLayers; ++i) {
    const bool mla = i % 4 == 3 || i == kLayers - 1;
    config.layers.push_back({.attention = mla ? AttentionKind::kMla : AttentionKind::kKda,
                             .ffn = i == 0 ? FfnKind::kDense : FfnKind::kMoe});
  }
  return config;
}

}  // namespace k3
