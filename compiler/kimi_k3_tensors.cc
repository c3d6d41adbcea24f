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
using enum TensorKind;
using enum Family;

// One tensor a line.
// clang-format off
constexpr TensorRow kTrunkRows[] = {
    {"model.embed_tokens.weight", kInModel, kEmbedding, kBf16, {kVocab, kHidden}},
    {"lm_head.weight", kInModel, kHead, kBf16, {kVocab, kHidden}},
    {"model.norm.weight", kInModel, kNorm, kBf16, {kHidden}},
    {"model.output_attn_res_norm.weight", kInModel, kAttentionResidual, kBf16, {kHidden}},
    {"model.output_attn_res_proj.weight", kInModel, kAttentionResidual, kBf16, {kOne, kHidden}},

    {"input_layernorm.weight", kInLayer, kNorm, kBf16, {kHidden}},
    {"post_attention_layernorm.weight", kInLayer, kNorm, kBf16, {kHidden}},
    {"self_attention_res_norm.weight", kInLayer, kAttentionResidual, kBf16, {kHidden}},
    {"self_attention_res_proj.weight", kInLayer, kAttentionResidual, kBf16, {kOne, kHidden}},
    {"mlp_res_norm.weight", kInLayer, kAttentionResidual, kBf16, {kHidden}},
    {"mlp_res_proj.weight", kInLayer, kAttentionResidual, kBf16, {kOne, kHidden}},

    {"q_proj.weight", kInKda, kKda, kMatrix, {kKdaWidth, kHidden}},
    {"k_proj.weight", kInKda, kKda, kMatrix, {kKdaWidth, kHidden}},
    {"v_proj.weight", kInKda, kKda, kMatrix, {kKdaWidth, kHidden}},
    {"g_proj.weight", kInKda, kKda, kMatrix, {kKdaWidth, kHidden}},
    {"o_proj.weight", kInKda, kKda, kMatrix, {kHidden, kKdaWidth}},
    {"q_conv1d.weight", kInKda, kKda, kF32, {kKdaWidth, kOne, kConvKernel}},
    {"k_conv1d.weight", kInKda, kKda, kF32, {kKdaWidth, kOne, kConvKernel}},
    {"v_conv1d.weight", kInKda, kKda, kF32, {kKdaWidth, kOne, kConvKernel}},
    {"f_a_proj.weight", kInKda, kKda, kBf16, {kKdaHeadDim, kHidden}},
    {"f_b_proj.weight", kInKda, kKda, kBf16, {kKdaWidth, kKdaHeadDim}},
    {"b_proj.weight", kInKda, kKda, kBf16, {kKdaHeads, kHidden}},
    {"A_log", kInKda, kKda, kF32, {kKdaHeadsPadded}},
    {"dt_bias", kInKda, kKda, kF32, {kKdaWidth}},
    {"o_norm.weight", kInKda, kKda, kF32, {kKdaHeadDim}},

    {"q_a_proj.weight", kInMla, kMla, kMatrix, {kQueryRank, kHidden}},
    {"q_a_layernorm.weight", kInMla, kMla, kBf16, {kQueryRank}},
    {"q_b_proj.weight", kInMla, kMla, kMatrix, {kQuery, kQueryRank}},
    {"kv_a_proj_with_mqa.weight", kInMla, kMla, kMatrix, {kKeyRankExtra, kHidden}},
    {"kv_a_layernorm.weight", kInMla, kMla, kBf16, {kKeyRank}},
    {"kv_b_proj.weight", kInMla, kMla, kBf16, {kKeyValue, kKeyRank}},
    {"g_proj.weight", kInGatedMla, kMla, kMatrix, {kMlaValue, kHidden}},
    {"o_proj.weight", kInMla, kMla, kMatrix, {kHidden, kMlaValue}},

    {"gate_proj.weight", kInDense, kDenseFfn, kMatrix, {kDenseInner, kHidden}},
    {"up_proj.weight", kInDense, kDenseFfn, kMatrix, {kDenseInner, kHidden}},
    {"down_proj.weight", kInDense, kDenseFfn, kMatrix, {kHidden, kDenseInner}},

    {"gate.weight", kInMoe, kRouter, kBf16, {kExperts, kHidden}},
    {"gate.e_score_correction_bias", kInMoe, kRouter, kF32, {kExperts}},
    {"routed_expert_down_proj.weight", kInMoe, kLatent, kMatrix, {kLatentWidth, kHidden}},
    {"routed_expert_norm.weight", kInLatentNorm, kLatent, kBf16, {kLatentWidth}},
    {"routed_expert_up_proj.weight", kInMoe, kLatent, kMatrix, {kHidden, kLatentWidth}},
    {"shared_experts.gate_proj.weight", kInMoe, kSharedExperts, kMatrix, {kShared, kHidden}},
    {"shared_experts.up_proj.weight", kInMoe, kSharedExperts, kMatrix, {kShared, kHidden}},
    {"shared_experts.down_proj.weight", kInMoe, kSharedExperts, kMatrix, {kHidden, kShared}},
};
// clang-format on

constexpr std::array kMxfp4ExpertRows = {
    ExpertRow{"w1.weight_packed", Dtype::kU8, {kExpertInner, kLatentCodes}},
    ExpertRow{"w1.weight_scale", Dtype::kU8, {kExpertInner, kLatentScales}},
    ExpertRow{"w2.weight_packed", Dtype::kU8, {kLatentWidth, kInnerCodes}},
    ExpertRow{"w2.weight_scale", Dtype::kU8, {kLatentWidth, kInnerScales}},
    ExpertRow{"w3.weight_packed", Dtype::kU8, {kExpertInner, kLatentCodes}},
    ExpertRow{"w3.weight_scale", Dtype::kU8, {kExpertInner, kLatentScales}},
};

constexpr std::array kBf16ExpertRows = {
    ExpertRow{"w1.weight", Dtype::kBf16, {kExpertInner, kLatentWidth}},
    ExpertRow{"w2.weight", Dtype::kBf16, {kLatentWidth, kExpertInner}},
    ExpertRow{"w3.weight", Dtype::kBf16, {kExpertInner, kLatentWidth}},
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
    case kKdaWidth:
      return config.kda_width();
    case kKdaHeads:
    case kKdaHeadsPadded:
      return config.kda_heads;
    case kKdaHeadDim:
      return config.kda_head_dim;
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
    case kLatentWidth:
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
    case kInModel:
      return false;
    case kInLayer:
      return true;
    case kInKda:
      return layer.attention == AttentionKind::kKda;
    case kInMla:
      return layer.attention == AttentionKind::kMla;
    case kInGatedMla:
      return layer.attention == AttentionKind::kMla && config.mla_output_gate;
    case kInDense:
      return layer.ffn == FfnKind::kDense;
    case kInMoe:
      return layer.ffn == FfnKind::kMoe;
    case kInLatentNorm:
      return layer.ffn == FfnKind::kMoe && config.latent_norm;
  }
  return false;
}

std::string_view stem_of(Place place) {
  switch (place) {
    case kInModel:
    case kInLayer:
      return "";
    case kInKda:
    case kInMla:
    case kInGatedMla:
      return "self_attn.";
    case kInDense:
      return "mlp.";
    case kInMoe:
    case kInLatentNorm:
      return "block_sparse_moe.";
  }
  return "";
}

Shape shape_of(const std::array<Width, 3>& widths, const ModelConfig& config) {
  std::array<int64_t, 3> dims{};
  size_t rank = 0;
  for (const Width width : widths) {
    if (width != kNone) dims[rank++] = size_of(width, config);
  }
  return Shape(std::span<const int64_t>(dims.data(), rank));
}

}  // namespace k3
