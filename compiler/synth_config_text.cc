#include "compiler/synth_config_text.h"

namespace k3 {

std::string_view kimi_k3_config_text() {
  return R"json(
{
  "architectures": [
    "KimiK3ForConditionalGeneration"
  ],
  "auto_map": {
    "AutoConfig": "configuration_kimi_k3.KimiK3Config",
    "AutoModel": "modeling_kimi_k3.KimiK3ForConditionalGeneration",
    "AutoModelForCausalLM": "modeling_kimi_k3.KimiK3ForConditionalGeneration"
  },
  "bos_token_id": $bos,
  "dtype": "bfloat16",
  "eos_token_id": $eos,
?  "ignore_index": -100,
?  "image_placeholder": "<|kimi_image_placeholder|>",
?  "media_placeholder_token_id": $media_pad,
  "model_type": "kimi_k3",
  "pad_token_id": $pad,
  "text_config": {
    "_name_or_path": "",
    "activation_situ_beta": $situ_beta,
    "activation_situ_linear_beta": $situ_linear_beta,
    "add_cross_attention": false,
    "architectures": [
      "KimiLinearForCausalLM"
    ],
    "attn_res_block_size": $residual_block,
    "auto_map": {
      "AutoConfig": "configuration_kimi_k3.KimiLinearConfig",
      "AutoModel": "modeling_kimi_linear.KimiLinearModel",
      "AutoModelForCausalLM": "modeling_kimi_linear.KimiLinearForCausalLM"
    },
    "bad_words_ids": null,
    "begin_suppress_tokens": null,
    "bos_token_id": $bos,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": null,
    "decoder_start_token_id": null,
    "diversity_penalty": 0.0,
    "do_sample": false,
    "dtype": "bfloat16",
    "early_stopping": false,
    "encoder_no_repeat_ngram_size": 0,
    "eos_token_id": $eos,
    "exponential_decay_length_penalty": null,
    "finetuning_task": null,
    "first_k_dense_replace": $dense_layers,
    "forced_bos_token_id": null,
    "forced_eos_token_id": null,
    "hidden_act": "situ",
    "hidden_size": $hidden,
    "id2label": {
      "0": "LABEL_0",
      "1": "LABEL_1"
    },
    "initializer_range": 0.02,
    "intermediate_size": $dense_inner,
    "is_decoder": false,
    "is_encoder_decoder": false,
    "kv_lora_rank": $kv_rank,
    "label2id": {
      "LABEL_0": 0,
      "LABEL_1": 1
    },
    "latent_moe_use_norm": true,
    "length_penalty": 1.0,
    "linear_attn_config": {
      "full_attn_layers": $full_attn_layers,
      "gate_lower_bound": $decay_bound,
      "head_dim": $kda_head_dim,
      "kda_layers": $kda_layers,
      "num_heads": $kda_heads,
      "short_conv_kernel_size": $conv_kernel,
      "use_full_rank_gate": true
    },
    "max_length": 20,
    "max_position_embeddings": $context,
    "min_length": 0,
    "mla_use_nope": true,
    "mla_use_output_gate": true,
    "model_type": "kimi_linear",
    "moe_intermediate_size": $expert_inner,
    "moe_layer_freq": 1,
    "moe_renormalize": true,
    "moe_router_activation_func": "sigmoid",
    "no_repeat_ngram_size": 0,
    "num_attention_heads": $mla_heads,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_expert_group": 1,
    "num_experts": $experts,
    "num_experts_per_token": $experts_per_token,
    "num_hidden_layers": $layers,
    "num_key_value_heads": $mla_heads,
    "num_nextn_predict_layers": 0,
    "num_return_sequences": 1,
    "num_shared_experts": $shared_experts,
    "output_attentions": false,
    "output_hidden_states": false,
    "output_scores": false,
    "pad_token_id": $pad,
    "prefix": null,
    "problem_type": null,
    "pruned_heads": {},
    "q_lora_rank": $q_rank,
    "qk_nope_head_dim": $content_dim,
    "qk_rope_head_dim": $extra_dim,
    "quantization_config": {
      "config_groups": {
        "group_0": {
          "format": "mxfp4-pack-quantized",
          "input_activations": null,
          "output_activations": null,
          "targets": [
            "Linear"
          ],
          "weights": {
            "actorder": null,
            "block_structure": null,
            "dynamic": false,
            "group_size": 32,
            "num_bits": 4,
            "observer": "minmax",
            "observer_kwargs": {},
            "scale_dtype": "torch.uint8",
            "strategy": "group",
            "symmetric": true,
            "type": "float",
            "zp_dtype": null
          }
        }
      },
      "format": "mxfp4-pack-quantized",
      "global_compression_ratio": null,
      "ignore": [
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
?        "re:.*lm_head.*",
!        "re:.*lm_head.*"
?        "re:.*vision_tower.*",
?        "re:.*mm_projector.*"
      ],
      "kv_cache_scheme": null,
      "quant_method": "compressed-tensors",
      "quantization_status": "compressed"
    },
    "remove_invalid_values": false,
    "repetition_penalty": 1.0,
    "return_dict": true,
    "return_dict_in_generate": false,
    "rms_norm_eps": $epsilon,
    "routed_expert_hidden_size": $latent,
    "routed_scaling_factor": $scaling,
    "sep_token_id": null,
    "suppress_tokens": null,
    "task_specific_params": null,
    "temperature": 1.0,
    "tf_legacy_loss": false,
    "tie_encoder_decoder": false,
    "tie_word_embeddings": false,
    "tokenizer_class": null,
    "top_k": 50,
    "top_p": 1.0,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "torchscript": false,
    "transformers_version": "4.56.2",
    "typical_p": 1.0,
    "use_bfloat16": false,
    "use_cache": true,
    "use_grouped_topk": true,
    "v_head_dim": $value_dim,
    "vocab_size": $vocab
  },
?  "tie_word_embeddings": false,
!  "tie_word_embeddings": false
?  "vision_config": {
?    "_attn_implementation": "flash_attention_2",
?    "activation_func": "gelu_pytorch_tanh",
?    "attn_bias": false,
?    "init_pos_emb_height": 64,
?    "init_pos_emb_time": 4,
?    "init_pos_emb_width": 64,
?    "linear_bias": false,
?    "merge_kernel_size": [
?      2,
?      2
?    ],
?    "merge_type": "sd2_tpool",
?    "mlp_type": "mlp2",
?    "mm_hidden_size": 1024,
?    "mm_projector_type": "patchmergerv2",
?    "norm_type": "rmsnorm",
?    "patch_embed_proj_bias": false,
?    "patch_size": 14,
?    "pos_emb_interpolation_mode": "bilinear",
?    "pos_emb_type": "divided_fixed",
?    "projector_hidden_act": "gelu",
?    "projector_ln_eps": 1e-05,
?    "qkv_hidden_size": 1536,
?    "text_hidden_size": $hidden,
?    "vt_hidden_size": 1024,
?    "vt_intermediate_size": 4096,
?    "vt_num_attention_heads": 12,
?    "vt_num_hidden_layers": 27
?  }
}
)json";
}

std::string_view kimi_linear_config_text() {
  return R"json(
{
  "architectures": [
    "KimiLinearForCausalLM"
  ],
  "auto_map": {
    "AutoConfig": "configuration_kimi.KimiLinearConfig",
    "AutoModel": "modeling_kimi.KimiLinearModel",
    "AutoModelForCausalLM": "modeling_kimi.KimiLinearForCausalLM"
  },
  "bos_token_id": $bos,
  "dtype": "bfloat16",
  "eos_token_id": $eos,
  "first_k_dense_replace": $dense_layers,
  "head_dim": 72,
  "hidden_act": "silu",
  "hidden_size": $hidden,
  "initializer_range": 0.02,
  "intermediate_size": $dense_inner,
  "kv_lora_rank": $kv_rank,
  "linear_attn_config": {
    "full_attn_layers": $full_attn_layers,
    "head_dim": $kda_head_dim,
    "kda_layers": $kda_layers,
    "num_heads": $kda_heads,
    "short_conv_kernel_size": $conv_kernel
  },
  "mla_use_nope": true,
  "model_max_length": $context,
  "model_type": "kimi_linear",
  "moe_intermediate_size": $expert_inner,
  "moe_layer_freq": 1,
  "moe_renormalize": true,
  "moe_router_activation_func": "sigmoid",
  "num_attention_heads": $mla_heads,
  "num_expert_group": 1,
  "num_experts": $experts,
  "num_experts_per_token": $experts_per_token,
  "num_hidden_layers": $layers,
  "num_key_value_heads": $mla_heads,
  "num_nextn_predict_layers": 0,
  "num_shared_experts": $shared_experts,
  "pad_token_id": $pad,
  "q_lora_rank": null,
  "qk_nope_head_dim": $content_dim,
  "qk_rope_head_dim": $extra_dim,
  "rms_norm_eps": $epsilon,
  "rope_scaling": null,
  "rope_theta": 10000.0,
  "routed_scaling_factor": $scaling,
  "tie_word_embeddings": false,
  "topk_group": 1,
  "transformers_version": "4.57.1",
  "use_cache": true,
  "use_grouped_topk": true,
  "v_head_dim": $value_dim,
  "vocab_size": $vocab
}
)json";
}

}  // namespace k3
