// The architecture of one model: what the compiler reads from config.json and the runtime reads
// from the pack.
//
// Every field is required of the input; there are no defaults to fall back on, because every
// framework that had some ran another model than the one on disk. A feature that a family lacks is
// an empty optional, never a zero.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace k3 {

// The values are on disk (pack.fbs). Append only.
enum class AttentionKind : uint8_t { kKda = 0, kMla = 1 };
enum class FfnKind : uint8_t { kDense = 0, kMoe = 1 };
enum class Activation : uint8_t { kSilu = 0, kSitu = 1 };

// Routed experts are added as integers (schema/README.md, F_L), which takes a bound on activations.
// SiTU has one; SiLU has none, so one is laid down: an activation beyond it makes its token's
// outputs NaN, and the runtime stops. It leaves outputs in steps near 2^-36 for weights of a usual
// size, which is below what float resolves down to outputs of 2^-12.
inline constexpr double kLargestSiluActivation = 0x1p20;

struct LayerConfig {
  AttentionKind attention = AttentionKind::kKda;
  FfnKind ffn = FfnKind::kMoe;
  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

// The basis of a rotated model (schema/README.md, Rotation). Each number is the order of the
// Hadamard blocks that a vector is cut into, 1 where it is left alone. `stream` and `query`
// rotations are folded into the weights on both sides, signs and a mixing of blocks included; the
// others are folded into the matrix that reads the vector and applied to the vector when the model
// runs.
struct RotatedBasis {
  uint64_t seed = 0;         // of the signs
  int64_t stream_block = 1;  // the residual stream
  int64_t query_block = 1;   // MLA's query rank
  int64_t kda_block = 1;     // KDA's gated heads, before o_proj
  int64_t mla_block = 1;     // MLA's, before o_proj
  int64_t dense_block = 1;   // the activations of the dense MLP, before down_proj
  int64_t shared_block = 1;  // those of the shared experts
  int64_t latent_block = 1;  // the normed sum of the experts, before routed_expert_up_proj
  friend bool operator==(const RotatedBasis&, const RotatedBasis&) = default;
};

struct ModelConfig {
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  std::vector<LayerConfig> layers;
  double rms_norm_epsilon = 0;       // all RMSNorms but the two below
  double low_rank_norm_epsilon = 0;  // MLA's q_a and kv_a norms; sources disagree, see kimi_k3.cc
  double qk_norm_epsilon = 0;        // KDA: x / sqrt(sum x^2 + this)

  // KDA
  int64_t kda_heads = 0;
  int64_t kda_head_dim = 0;
  int64_t conv_kernel = 0;  // taps of the causal convolution
  std::optional<double>
      decay_lower_bound;  // g = bound * sigmoid(exp(A) z); empty: g = -exp(A) softplus(z)
  std::optional<int64_t> kda_gate_rank;  // low-rank output gate; empty: one full matrix

  // MLA, without positions
  int64_t mla_heads = 0;
  std::optional<int64_t> q_lora_rank;  // empty: one full q_proj
  int64_t kv_lora_rank = 0;
  int64_t qk_content_dim = 0;  // qk_nope_head_dim
  int64_t qk_extra_dim = 0;    // qk_rope_head_dim; never rotated
  int64_t v_head_dim = 0;
  bool mla_output_gate = false;

  // Feed-forward
  int64_t dense_intermediate_size = 0;
  Activation activation = Activation::kSilu;
  double situ_beta = 0;  // SiTU: beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta)
  double situ_linear_beta = 0;

  // Mixture of experts
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_intermediate_size = 0;
  int64_t shared_experts = 0;          // stored fused: one MLP of this many times the width
  std::optional<int64_t> latent_size;  // width the routed experts work in; empty: hidden_size
  bool latent_norm = false;            // RMSNorm on the weighted sum of the experts
  bool renormalize = false;            // divide the chosen scores by their sum
  double routed_scaling_factor = 0;

  std::optional<int64_t>
      attention_residual_block;  // layers per AttnRes block; empty: plain residual stream

  std::optional<RotatedBasis> rotation = {};  // empty: the checkpoint's own basis

  int64_t bos_token_id = 0;
  int64_t eos_token_id = 0;
  int64_t pad_token_id = 0;

  double largest_activation() const {
    return activation == Activation::kSitu ? situ_beta * situ_linear_beta : kLargestSiluActivation;
  }
  int64_t expert_width() const { return latent_size.value_or(hidden_size); }
  int64_t shared_intermediate_size() const { return shared_experts * expert_intermediate_size; }
  int64_t kda_width() const { return kda_heads * kda_head_dim; }
  int64_t qk_head_dim() const { return qk_content_dim + qk_extra_dim; }
  int64_t cache_width() const { return kv_lora_rank + qk_extra_dim; }  // of MLA, per position

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace k3
