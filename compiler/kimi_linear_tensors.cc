// Where the older model differs from Kimi K3: no AttnRes, no latent projections, no gate on MLA, a
// gate of low rank on KDA, one full q_proj instead of two; only A_log, with its rank of four, and
// dt_bias are F32. With these rows the released checkpoint's count of tensors and its total size
// come out exactly.
//
// What stays in its source precision follows the reasons given in kimi_k3_tensors.cc; the low-rank
// gate (g_a, g_b) goes through a sigmoid and is as small as the decay's projections.
#include "compiler/kimi_linear_tensors.h"

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

    TensorRow{"input_layernorm.weight", kLayer, Family::kNorm, kB, kExact, {kHidden}},
    TensorRow{"post_attention_layernorm.weight", kLayer, Family::kNorm, kB, kExact, {kHidden}},

    TensorRow{"self_attn.q_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kKda, kHidden}},
    TensorRow{"self_attn.k_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kKda, kHidden}},
    TensorRow{"self_attn.v_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kKda, kHidden}},
    TensorRow{"self_attn.o_proj.weight", kKdaLayer, Family::kKda, kB, kMayQuantize, {kHidden, kKda}},
    TensorRow{"self_attn.q_conv1d.weight", kKdaLayer, Family::kKda, kB, kExact, {kKda, kOne, kConvKernel}},
    TensorRow{"self_attn.k_conv1d.weight", kKdaLayer, Family::kKda, kB, kExact, {kKda, kOne, kConvKernel}},
    TensorRow{"self_attn.v_conv1d.weight", kKdaLayer, Family::kKda, kB, kExact, {kKda, kOne, kConvKernel}},
    TensorRow{"self_attn.f_a_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKdaHeadDim, kHidden}},
    TensorRow{"self_attn.f_b_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKda, kKdaHeadDim}},
    TensorRow{"self_attn.g_a_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKdaGateRank, kHidden}},
    TensorRow{"self_attn.g_b_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKda, kKdaGateRank}},
    TensorRow{"self_attn.b_proj.weight", kKdaLayer, Family::kKda, kB, kExact, {kKdaHeads, kHidden}},
    TensorRow{"self_attn.A_log", kKdaLayer, Family::kKda, kF, kExact, {kStoredOne, kStoredOne, kKdaHeads, kStoredOne}},
    TensorRow{"self_attn.dt_bias", kKdaLayer, Family::kKda, kF, kExact, {kKda}},
    TensorRow{"self_attn.o_norm.weight", kKdaLayer, Family::kKda, kB, kExact, {kKdaHeadDim}},

    TensorRow{"self_attn.q_proj.weight", kMlaLayer, Family::kMla, kB, kMayQuantize, {kQuery, kHidden}},
    TensorRow{"self_attn.kv_a_proj_with_mqa.weight", kMlaLayer, Family::kMla, kB, kMayQuantize, {kKeyRankExtra, kHidden}},
    TensorRow{"self_attn.kv_a_layernorm.weight", kMlaLayer, Family::kMla, kB, kExact, {kKeyRank}},
    TensorRow{"self_attn.kv_b_proj.weight", kMlaLayer, Family::kMla, kB, kExact, {kKeyValue, kKeyRank}},
    TensorRow{"self_attn.o_proj.weight", kMlaLayer, Family::kMla, kB, kMayQuantize, {kHidden, kMlaValue}},

    TensorRow{"mlp.gate_proj.weight", kDenseLayer, Family::kDenseFfn, kB, kMayQuantize, {kDenseInner, kHidden}},
    TensorRow{"mlp.up_proj.weight", kDenseLayer, Family::kDenseFfn, kB, kMayQuantize, {kDenseInner, kHidden}},
    TensorRow{"mlp.down_proj.weight", kDenseLayer, Family::kDenseFfn, kB, kMayQuantize, {kHidden, kDenseInner}},

    TensorRow{"block_sparse_moe.gate.weight", kMoeLayer, Family::kRouter, kB, kExact, {kExperts, kHidden}},
    TensorRow{"block_sparse_moe.gate.e_score_correction_bias", kMoeLayer, Family::kRouter, kB, kExact, {kExperts}},
    TensorRow{"block_sparse_moe.shared_experts.gate_proj.weight", kMoeLayer, Family::kSharedExperts, kB, kMayQuantize, {kShared, kHidden}},
    TensorRow{"block_sparse_moe.shared_experts.up_proj.weight", kMoeLayer, Family::kSharedExperts, kB, kMayQuantize, {kShared, kHidden}},
    TensorRow{"block_sparse_moe.shared_experts.down_proj.weight", kMoeLayer, Family::kSharedExperts, kB, kMayQuantize, {kHidden, kShared}},
};
// clang-format on

}  // namespace

std::span<const TensorRow> kimi_linear_trunk_rows() {
  return kTrunkRows;
}

}  // namespace k3
