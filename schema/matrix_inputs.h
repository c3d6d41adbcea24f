// Which vectors the matrices of a model read, and which matrices read the same one.
//
// Calibration is kept per vector, not per matrix: seven matrices of a KDA layer read one normed
// stream and share one Gram matrix. This is the one table of that sharing; the runtime reports
// inputs by it and the solver finds them by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/model_config.h"

namespace k3 {

enum class MatrixInput : uint8_t {
  kAttention,    // the normed stream: every first projection of the attention
  kDecayRank,    // KDA: f_b_proj's
  kGateRank,     // KDA with kda_gate_rank: g_b_proj's
  kQueryRank,    // MLA with q_lora_rank: the normed rank that q_b_proj reads
  kCacheLatent,  // MLA: the normed latent that kv_b_proj reads
  kAttended,     // the gated output of the heads: o_proj's
  kFfn,          // the normed stream: gate and up, router, routed_expert_down_proj
  kRouted,       // with latent_size: the sum of the experts, routed_expert_up_proj's
  kInner,        // the activations: down_proj's of the dense or the shared MLP
  kHead,         // the normed output: lm_head's
};

// "attention", "decay_rank", ...
std::string_view matrix_input_name(MatrixInput input);

struct SharedInput {
  MatrixInput kind = MatrixInput::kAttention;
  int64_t layer = 0;  // the number of layers for kHead
  int64_t width = 0;
  std::string name;                   // "layers.3.attention", "head"
  std::vector<std::string> matrices;  // by their names in the pack; all have `width` columns
};

// The inputs of one layer, or with `layer` = the number of layers the head's, in the order of the
// enumerators. `config` must have passed check_config.
std::vector<SharedInput> matrix_inputs(const ModelConfig& config, int64_t layer);

}  // namespace k3
