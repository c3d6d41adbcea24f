// rotate_stream: on request, the whole model in another basis, in which no channel is special.
//
// An outlier channel of the residual stream costs every matrix that reads it: a ternary code spends
// its scale on that channel, and the others are lost. An orthogonal matrix Q spreads it over all
// channels, and in exact arithmetic nothing else changes:
//
// - The embedding's rows become Q e, so the stream is Q h from the start. What adds to it, o_proj,
//   down_proj and routed_expert_up_proj, gets Q on its outputs.
// - An RMSNorm divides by a length, which Q keeps. Its gain, which Q does not commute with, is
//   first folded into the columns of whatever reads it: W diag(g) (h / |h|). Those columns then get
//   Q^T, and the gain is ones.
// - Attention residuals weigh whole vectors: a score is the normed stream times (norm * proj), one
//   vector that is rotated like a row of a matrix, and the mix is linear in the raw streams.
// - MLA's query rank has an RMSNorm between q_a_proj and q_b_proj and nothing else: it has a
//   rotation of its own, folded on both sides. The cache's latent could have one too, but its one
//   reader, kv_b_proj, stays exact, and would gain nothing.
//
// Three vectors come from elementwise functions, which no rotation passes: the gated heads before
// o_proj, the activations before down_proj, and the sum of the experts (whose matrices are frozen)
// before routed_expert_up_proj. They are rotated when the model runs, by Hadamard blocks within a
// head or the vector, and their readers have the same blocks in their columns.
//
// All of this is computed in double and rounded once, to float or to the format asked for. What
// would have kept its source precision is stored as f32 if it is touched: bf16 would round it a
// second time, and a pack that was told to lose nothing must not.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>

#include "passes/pass.h"
#include "schema/hadamard.h"

namespace k3 {
namespace {

// The vectors that have a rotation.
enum class Vector : uint8_t { kNone, kStream, kQuery, kHeads, kDense, kShared, kLatent };

struct Rule {
  std::string_view name;
  std::string_view gain;  // the norm that is folded into its columns
  Vector inputs = Vector::kNone;
  Vector outputs = Vector::kNone;
};

constexpr std::string_view kInputNorm = "input_layernorm.weight";
constexpr std::string_view kFfnNorm = "post_attention_layernorm.weight";

// Behind "model.layers.N.".
constexpr std::array kLayerRules = {
    Rule{"self_attention_res_proj.weight", "self_attention_res_norm.weight", Vector::kStream},
    Rule{"mlp_res_proj.weight", "mlp_res_norm.weight", Vector::kStream},
    Rule{"self_attn.q_proj.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.k_proj.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.v_proj.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.f_a_proj.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.b_proj.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.g_a_proj.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.g_proj.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.q_a_proj.weight", kInputNorm, Vector::kStream, Vector::kQuery},
    Rule{"self_attn.q_b_proj.weight", "self_attn.q_a_layernorm.weight", Vector::kQuery},
    Rule{"self_attn.kv_a_proj_with_mqa.weight", kInputNorm, Vector::kStream},
    Rule{"self_attn.o_proj.weight", "", Vector::kHeads, Vector::kStream},
    Rule{"mlp.gate_proj.weight", kFfnNorm, Vector::kStream},
    Rule{"mlp.up_proj.weight", kFfnNorm, Vector::kStream},
    Rule{"mlp.down_proj.weight", "", Vector::kDense, Vector::kStream},
    Rule{"block_sparse_moe.gate.weight", kFfnNorm, Vector::kStream},
    Rule{"block_sparse_moe.routed_expert_down_proj.weight", kFfnNorm, Vector::kStream},
    Rule{"block_sparse_moe.routed_expert_up_proj.weight",
         "block_sparse_moe.routed_expert_norm.weight", Vector::kLatent, Vector::kStream},
    Rule{"block_sparse_moe.shared_experts.gate_proj.weight", kFfnNorm, Vector::kStream},
    Rule{"block_sparse_moe.shared_experts.up_proj.weight", kFfnNorm, Vector::kStream},
    Rule{"block_sparse_moe.shared_experts.down_proj.weight", "", Vector::kShared, Vector::kStream},
};

constexpr std::array kModelRules = {
    Rule{"model.embed_tokens.weight", "", Vector::kStream},
    Rule{"model.output_attn_res_proj.weight", "model.output_attn_res_norm.weight", Vector::kStream},
    Rule{"lm_head.weight", "model.norm.weight", Vector::kStream},
};

RotatedBasis choose_basis(const ModelConfig& config, uint64_t seed) {
  RotatedBasis basis{.seed = seed, .stream_block = hadamard_block(config.hidden_size)};
  const auto block = [](int64_t width) { return width > 0 ? hadamard_block(width) : 1; };
  basis.query_block = block(config.q_lora_rank.value_or(0));
  basis.kda_block = block(config.kda_head_dim);
  basis.mla_block = block(config.v_head_dim);
  basis.dense_block = block(config.dense_intermediate_size);
  basis.shared_block = block(config.shared_intermediate_size());
  basis.latent_block = block(config.latent_size.value_or(0));
  return basis;
}

class StreamRotation {
 public:
  StreamRotation(Model& model, PassContext& context) : model_(model), context_(context) {
    for (size_t i = 0; i < model.trunk.size(); ++i) by_name_.emplace(model.trunk[i].name, i);
  }

  // Whether this model has a rotation; if not, the problems say why.
  bool is_possible() {
    const ModelConfig& config = model_.config;
    const bool has_experts = std::any_of(config.layers.begin(), config.layers.end(),
                                         [](auto& layer) { return layer.ffn == FfnKind::kMoe; });
    if (has_experts && !config.latent_size) {
      context_.problems.add(
          "the routed experts of this model read the stream itself and are never "
          "re-encoded, so it cannot be rotated");
    }
    check_blocks("the stream", config.hidden_size);
    if (config.q_lora_rank) check_blocks("the query rank", *config.q_lora_rank);
    return context_.problems.empty();
  }

  void run() {
    model_.config.rotation = choose_basis(model_.config, context_.options.rotate_stream.seed);
    for (const Rule& rule : kModelRules) apply(rule, "", 0);
    for (size_t layer = 0; layer < model_.config.layers.size(); ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      for (const Rule& rule : kLayerRules) apply(rule, prefix, layer);
    }
    record();
  }

 private:
  void check_blocks(const char* what, int64_t width) {
    const int64_t blocks = width / hadamard_block(width);
    if (blocks <= kMostMixedBlocks) return;
    context_.problems.add(what, " is ", width, " wide, ", blocks, " blocks of ",
                          hadamard_block(width), "; at most ", kMostMixedBlocks,
                          " blocks are rotated");
  }

  std::optional<size_t> find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }

  std::optional<Rotation> rotation_of(Vector vector, size_t layer) const {
    const ModelConfig& config = model_.config;
    const RotatedBasis& basis = *config.rotation;
    const bool is_kda = config.layers[layer].attention == AttentionKind::kKda;
    Rotation rotation;
    switch (vector) {
      case Vector::kNone:
        return std::nullopt;
      case Vector::kStream:
        return Rotation{config.hidden_size, basis.stream_block, basis.seed};
      case Vector::kQuery:
        return Rotation{config.q_lora_rank.value_or(0), basis.query_block, basis.seed};
      case Vector::kHeads:
        rotation = is_kda ? Rotation{config.kda_width(), basis.kda_block, {}}
                          : Rotation{config.mla_heads * config.v_head_dim, basis.mla_block, {}};
        break;
      case Vector::kDense:
        rotation = {config.dense_intermediate_size, basis.dense_block, {}};
        break;
      case Vector::kShared:
        rotation = {config.shared_intermediate_size(), basis.shared_block, {}};
        break;
      case Vector::kLatent:
        rotation = {config.latent_size.value_or(0), basis.latent_block, {}};
        break;
    }
    return rotation.block > 1 ? std::optional(rotation) : std::nullopt;
  }

  // Not every layer has every tensor, nor every model every norm.
  void apply(const Rule& rule, const std::string& prefix, size_t layer) {
    const auto index = find(prefix + std::string(rule.name));
    if (!index) return;
    TrunkTensor& tensor = model_.trunk[*index];
    Folding& folding = tensor.folding;
    if (!rule.gain.empty()) folding.gain = find(prefix + std::string(rule.gain));
    folding.inputs = rotation_of(rule.inputs, layer);
    folding.outputs = rotation_of(rule.outputs, layer);
    ++rotated_;
    std::string choice;
    const auto say = [&](std::string_view part) {
      choice += choice.empty() ? "" : ", ";
      choice += part;
    };
    if (folding.gain) say("gains of " + model_.trunk[*folding.gain].name);
    if (folding.inputs) say(folding.inputs->seed ? "inputs rotated" : "inputs rotated online");
    if (folding.outputs) say("outputs rotated");
    context_.decide(tensor.name, choice,
                    "asked for; the number is the Hadamard block of the inputs",
                    static_cast<double>(folding.inputs ? folding.inputs->block : 1));
    if (folding.gain) fold_away(model_.trunk[*folding.gain]);
  }

  // One norm has many readers.
  void fold_away(TrunkTensor& norm) {
    if (norm.folding.is_folded_away) return;
    norm.folding.is_folded_away = true;
    ++folded_;
    context_.decide(norm.name, "ones", "its gains are folded; the number is its width",
                    static_cast<double>(norm.shape.elements().value_or(0)));
  }

  void record() {
    context_.record("rotated tensors", static_cast<double>(rotated_));
    context_.record("folded norms", static_cast<double>(folded_));
    const TernaryTrunkOptions& formats = context_.options.ternary_trunk;
    std::string kept = formats.trunk == Precision::kSource ? "embedding, trunk"
                                                           : "embedding, router, small projections";
    if (formats.head == Precision::kSource) kept += ", head";
    context_.note("rotated, and stored as f32, because bf16 would round them again: " + kept);
  }

  Model& model_;
  PassContext& context_;
  std::unordered_map<std::string, size_t> by_name_;
  int64_t rotated_ = 0;
  int64_t folded_ = 0;
};

}  // namespace

void rotate_stream(Model& model, PassContext& context) {
  if (!context.options.rotate_stream.rotate) return;
  StreamRotation rotation(model, context);
  if (rotation.is_possible()) rotation.run();
}

}  // namespace k3
