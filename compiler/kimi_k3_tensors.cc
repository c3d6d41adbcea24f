// Names, types and shapes were checked against the released index as a set and by their sum of
// bytes. Matrices are [outputs, inputs].
//
// What must stay in its source precision: routers and norms, because a small error there changes
// which experts run; the decay and beta projections (f_a, f_b, b), whose outputs pass through
// exponentials; the AttnRes vectors; kv_b_proj, whose absorbed use multiplies from the other side,
// across row scales; and the embedding. The head has an option of its own.
#include "compiler/kimi_k3_tensors.h"

#include <array>

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

}  // namespace

std::span<const TensorRow> kimi_k3_trunk_rows() {
  return kTrunkRows;
}

}  // namespace k3
