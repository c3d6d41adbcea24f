// Names, types and shapes were checked against the released index as a set and by their sum of
// bytes. Matrices are [outputs, inputs].
//
// What must stay in its source precision: routers and norms, because a small error there changes
// which experts run; the decay and beta projections (f_a, f_b, b), whose outputs pass through
// exponentials; the AttnRes vectors; kv_b_proj, whose absorbed use multiplies from the other side,
// across row scales; and the embedding. The head has an option of its own.
#include "compiler/kimi_k3_tensors.h"

#include "schema/formats/mxfp4.h"

namespace k3 {
namespace {

using enum Width;
using enum Place;
using enum Plan;

constexpr Dtype kB = Dtype::kBf16;
constexpr Dtype kF = Dtype::kF32;

// clang-format off
constexpr std::array kTrunkRows = {
    TensorRow{"model.embed_tokens.weight", kModel, Family::kEmbedding, kB, kExact, {kVocab, kHidden}},
    TensorRow{"lm_head.weight", kModel, Family::kHead, kB, kExact, {kVocab, kHidden}},
    TensorRow{"model.norm.weight", kModel, Family::kNorm, kB, kExact, {kHidden}},
    TensorRow{"model.output_attn_res_norm.weight", kModel, Family::kAttentionResidual, kB, kExact, {kHidden}},
    TensorRow{"model.output_attn_res_proj.weight", kModel, Family::kAttentionResidual, kB, kExact, {kOne, kHidden}},

    TensorRow{"input_layernorm.weight", kLayer, Family::kNorm, kB, kExact, {kHidden}},
    TensorRow{"post_attention_layernorm.weight", kLayer, Family::kNorm, kB, kExact, {kHidden}},
    TensorRow{"self_attention_res_norm.weight", kLayer, Family::kAttentionResidual, kB, kExact, {kHidden}},
    TensorRow{"self_attention_res_proj.weight", kLayer, Family::kAttentionResidual, kB, kExact, {kOne, kHidden}},
    TensorRow{"mlp_res_norm.weight", kLayer, Family::kAttentionResidual, kB, kExact, {kHidden}},
    TensorRow{"mlp_res_proj.weight", kLayer, Family::kAttentionResidual, kB, kExact, {kOne, kHidden}},

    TensorRow{"self_attn.q_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kKda, kHidden}},
    TensorRow{"self_attn.k_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kKda, kHidden}},
    TensorRow{"self_attn.v_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kKda, kHidden}},
    TensorRow{"self_attn.g_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kKda, kHidden}},
    TensorRow{"self_attn.o_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kHidden, kKda}},
    TensorRow{"self_attn.q_conv1d.weight", kKdaLayer, Family::kKda, kF, kExact, {kKda, kOne, kConvKernel}},
    TensorRow{"self_attn.k_conv1d.weight", kKdaLayer, Family::kKda, kF, kExact, {kKda, kOne, kConvKernel}},
    TensorRow{"self_attn.v_conv1d.weight", kKdaLayer, Family::kKda, kF, kExact, {kKda, kOne, kConvKernel}},
    TensorRow{"self_attn.f_a_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKdaHeadDim, kHidden}},
    TensorRow{"self_attn.f_b_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKda, kKdaHeadDim}},
    TensorRow{"self_attn.b_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKdaHeads, kHidden}},
    TensorRow{"self_attn.A_log", kKdaLayer, Family::kKda, kF, kExact, {kKdaHeadsPadded}},
    TensorRow{"self_attn.dt_bias", kKdaLayer, Family::kKda, kF, kExact, {kKda}},
    TensorRow{"self_attn.o_norm.weight", kKdaLayer, Family::kKda, kF, kExact, {kKdaHeadDim}},

    TensorRow{"self_attn.q_a_proj.weight", kMlaLayer, Family::kMla, kB, kMayQuantize, {kQueryRank, kHidden}},
    TensorRow{"self_attn.q_a_layernorm.weight", kMlaLayer, Family::kMla, kB, kExact, {kQueryRank}},
    TensorRow{"self_attn.q_b_proj.weight", kMlaLayer, Family::kMla, kB, kMayQuantize, {kQuery, kQueryRank}},
    TensorRow{"self_attn.kv_a_proj_with_mqa.weight", kMlaLayer, Family::kMla, kB, kMayQuantize, {kKeyRankExtra, kHidden}},
    TensorRow{"self_attn.kv_a_layernorm.weight", kMlaLayer, Family::kMla, kB, kExact, {kKeyRank}},
    TensorRow{"self_attn.kv_b_proj.weight", kMlaLayer, Family::kMla, kB, kExact, {kKeyValue, kKeyRank}},
    TensorRow{"self_attn.g_proj.weight", kGatedMlaLayer, Family::kMla, kB, kMayQuantize, {kMlaValue, kHidden}},
    TensorRow{"self_attn.o_proj.weight", kMlaLayer, Family::kMla, kB, kMayQuantize, {kHidden, kMlaValue}},

    TensorRow{"mlp.gate_proj.weight", kDenseLayer, Family::kDenseFfn, kB, kMayQuantize, {kDenseInner, kHidden}},
    TensorRow{"mlp.up_proj.weight", kDenseLayer, Family::kDenseFfn, kB, kMayQuantize, {kDenseInner, kHidden}},
    TensorRow{"mlp.down_proj.weight", kDenseLayer, Family::kDenseFfn, kB, kMayQuantize, {kHidden, kDenseInner}},

    TensorRow{"block_sparse_moe.gate.weight", kMoeLayer, Family::kRouter, kB, kExact, {kExperts, kHidden}},
    TensorRow{"block_sparse_moe.gate.e_score_correction_bias", kMoeLayer, Family::kRouter, kF, kExact, {kExperts}},
    TensorRow{"block_sparse_moe.routed_expert_down_proj.weight", kMoeLayer, Family::kLatent, kB, kMayQuantize, {kLatent, kHidden}},
    TensorRow{"block_sparse_moe.routed_expert_norm.weight", kLatentNormLayer, Family::kLatent, kB, kExact, {kLatent}},
    TensorRow{"block_sparse_moe.routed_expert_up_proj.weight", kMoeLayer, Family::kLatent, kB, kMayQuantize, {kHidden, kLatent}},
    TensorRow{"block_sparse_moe.shared_experts.gate_proj.weight", kMoeLayer, Family::kSharedExperts, kB, kMayQuantize, {kShared, kHidden}},
    TensorRow{"block_sparse_moe.shared_experts.up_proj.weight", kMoeLayer, Family::kSharedExperts, kB, kMayQuantize, {kShared, kHidden}},
    TensorRow{"block_sparse_moe.shared_experts.down_proj.weight", kMoeLayer, Family::kSharedExperts, kB, kMayQuantize, {kHidden, kShared}},
};
// clang-format on

constexpr std::array kMxfp4ExpertRows = {
    ExpertRow{"w1.weight_packed", Dtype::kU8, {kExpertInner, kLatentCodes}},
    ExpertRow{"w1.weight_scale", Dtype::kU8, {kExpertInner, kLatentScales}},
    ExpertRow{"w2.weight_packed", Dtype::kU8, {kLatent, kInnerCodes}},
    ExpertRow{"w2.weight_scale", Dtype::kU8, {kLatent, kInnerScales}},
    ExpertRow{"w3.weight_packed", Dtype::kU8, {kExpertInner, kLatentCodes}},
    ExpertRow{"w3.weight_scale", Dtype::kU8, {kExpertInner, kLatentScales}},
};

constexpr std::array kBf16ExpertRows = {
    ExpertRow{"w1.weight", kB, {kExpertInner, kLatent}},
    ExpertRow{"w2.weight", kB, {kLatent, kExpertInner}},
    ExpertRow{"w3.weight", kB, {kExpertInner, kLatent}},
};

int64_t size_of(Width width, const ModelConfig& config) {
  constexpr int64_t kInputsPerCode = 2;
  switch (width) {
    case kNone:
      break;
    case kOne:
      return 1;
    case kHidden:
      return config.hidden_size;
    case kVocab:
      return config.vocab_size;
    case kKda:
      return config.kda_width();
    case kKdaHeads:
    case kKdaHeadsPadded:
      return config.kda_heads;
    case kKdaHeadDim:
      return config.kda_head_dim;
    case kKdaGateRank:
      return config.kda_gate_rank.value_or(0);
    case kConvKernel:
      return config.conv_kernel;
    case kQueryRank:
      return config.q_lora_rank.value_or(0);
    case kQuery:
      return config.mla_heads * config.qk_head_dim();
    case kKeyRank:
      return config.kv_lora_rank;
    case kKeyRankExtra:
      return config.kv_lora_rank + config.qk_extra_dim;
    case kKeyValue:
      return config.mla_heads * (config.qk_content_dim + config.v_head_dim);
    case kMlaValue:
      return config.mla_heads * config.v_head_dim;
    case kDenseInner:
      return config.dense_intermediate_size;
    case kExperts:
      return config.experts;
    case kLatent:
      return config.expert_width();
    case kShared:
      return config.shared_intermediate_size();
    case kExpertInner:
      return config.expert_intermediate_size;
    case kLatentCodes:
      return config.expert_width() / kInputsPerCode;
    case kLatentScales:
      return config.expert_width() / kMxfp4GroupInputs;
    case kInnerCodes:
      return config.expert_intermediate_size / kInputsPerCode;
    case kInnerScales:
      return config.expert_intermediate_size / kMxfp4GroupInputs;
  }
  return 0;
}

}  // namespace

std::span<const TensorRow> kimi_k3_trunk_rows() {
  return kTrunkRows;
}

std::span<const ExpertRow> kimi_k3_expert_rows(Format format) {
  if (format == Format::kMxfp4) return kMxfp4ExpertRows;
  return kBf16ExpertRows;
}

bool has_place(const ModelConfig& config, const LayerConfig& layer, Place place) {
  switch (place) {
    case kModel:
      return false;
    case kLayer:
      return true;
    case kKdaLayer:
      return layer.attention == AttentionKind::kKda;
    case kMlaLayer:
      return layer.attention == AttentionKind::kMla;
    case kGatedMlaLayer:
      return layer.attention == AttentionKind::kMla && config.mla_output_gate;
    case kDenseLayer:
      return layer.ffn == FfnKind::kDense;
    case kMoeLayer:
      return layer.ffn == FfnKind::kMoe;
    case kLatentNormLayer:
      return layer.ffn == FfnKind::kMoe && config.latent_norm;
  }
  return false;
}

Shape shape_of(const Widths& widths, const ModelConfig& config) {
  std::array<int64_t, Shape::kMaxRank> dims{};
  size_t rank = 0;
  for (const Width width : widths) {
    if (width != kNone) dims[rank++] = size_of(width, config);
  }
  return Shape(std::span<const int64_t>(dims.data(), rank));
}

}  // namespace k3
