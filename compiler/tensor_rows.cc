#include "compiler/tensor_rows.h"

#include "schema/formats/mxfp4.h"

namespace k3 {
namespace {

using enum Width;
using enum Place;

constexpr std::array kMxfp4ExpertRows = {
    ExpertRow{"w1.weight_packed", Dtype::kU8, {kExpertInner, kLatentCodes}},
    ExpertRow{"w1.weight_scale", Dtype::kU8, {kExpertInner, kLatentScales}},
    ExpertRow{"w2.weight_packed", Dtype::kU8, {kLatent, kInnerCodes}},
    ExpertRow{"w2.weight_scale", Dtype::kU8, {kLatent, kInnerScales}},
    ExpertRow{"w3.weight_packed", Dtype::kU8, {kExpertInner, kLatentCodes}},
    ExpertRow{"w3.weight_scale", Dtype::kU8, {kExpertInner, kLatentScales}},
};

constexpr std::array kBf16ExpertRows = {
    ExpertRow{"w1.weight", Dtype::kBf16, {kExpertInner, kLatent}},
    ExpertRow{"w2.weight", Dtype::kBf16, {kLatent, kExpertInner}},
    ExpertRow{"w3.weight", Dtype::kBf16, {kExpertInner, kLatent}},
};

int64_t size_of(Width width, const ModelConfig& config) {
  constexpr int64_t kInputsPerCode = 2;
  switch (width) {
    case kNone:
      break;
    case kOne:
    case kStoredOne:
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

Shape shape_without(Width left_out, const Widths& widths, const ModelConfig& config) {
  std::array<int64_t, Shape::kMaxRank> dims{};
  size_t rank = 0;
  for (const Width width : widths) {
    if (width != kNone && width != left_out) dims[rank++] = size_of(width, config);
  }
  return Shape(std::span<const int64_t>(dims.data(), rank));
}

}  // namespace

std::span<const ExpertRow> expert_rows(Format format) {
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

Shape stored_shape(const Widths& widths, const ModelConfig& config) {
  return shape_without(kNone, widths, config);
}

Shape model_shape(const Widths& widths, const ModelConfig& config) {
  return shape_without(kStoredOne, widths, config);
}

}  // namespace k3
