#include "schema/matrix_inputs.h"

#include <array>
#include <initializer_list>
#include <utility>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr std::array<std::string_view, 10> kNames = {
    "attention", "decay_rank", "gate_rank", "query_rank", "cache_latent",
    "attended",  "ffn",        "routed",    "inner",      "head"};

class InputList {
 public:
  InputList(int64_t layer) : layer_(layer), prefix_("layers." + std::to_string(layer) + ".") {}

  // An input of this layer; `matrices` are named behind "model.layers.N." + `place`.
  void add(MatrixInput kind, int64_t width, std::string_view place,
           std::initializer_list<std::string_view> matrices) {
    SharedInput input{.kind = kind,
                      .layer = layer_,
                      .width = width,
                      .name = prefix_ + std::string(matrix_input_name(kind)),
                      .matrices = {}};
    for (std::string_view matrix : matrices) {
      input.matrices.push_back("model." + prefix_ + std::string(place) + std::string(matrix) +
                               ".weight");
    }
    inputs_.push_back(std::move(input));
  }
  std::vector<SharedInput> take() { return std::move(inputs_); }

 private:
  int64_t layer_;
  std::string prefix_;
  std::vector<SharedInput> inputs_;
};

void add_kda(const ModelConfig& config, InputList& list) {
  constexpr std::string_view kPlace = "self_attn.";
  const int64_t hidden = config.hidden_size;
  if (config.kda_gate_rank) {
    list.add(MatrixInput::kAttention, hidden, kPlace,
             {"q_proj", "k_proj", "v_proj", "f_a_proj", "b_proj", "g_a_proj"});
  } else {
    list.add(MatrixInput::kAttention, hidden, kPlace,
             {"q_proj", "k_proj", "v_proj", "f_a_proj", "b_proj", "g_proj"});
  }
  list.add(MatrixInput::kDecayRank, config.kda_head_dim, kPlace, {"f_b_proj"});
  if (config.kda_gate_rank) {
    list.add(MatrixInput::kGateRank, *config.kda_gate_rank, kPlace, {"g_b_proj"});
  }
  list.add(MatrixInput::kAttended, config.kda_width(), kPlace, {"o_proj"});
}

void add_mla(const ModelConfig& config, InputList& list) {
  constexpr std::string_view kPlace = "self_attn.";
  const std::string_view query = config.q_lora_rank ? "q_a_proj" : "q_proj";
  if (config.mla_output_gate) {
    list.add(MatrixInput::kAttention, config.hidden_size, kPlace,
             {query, "kv_a_proj_with_mqa", "g_proj"});
  } else {
    list.add(MatrixInput::kAttention, config.hidden_size, kPlace, {query, "kv_a_proj_with_mqa"});
  }
  if (config.q_lora_rank) {
    list.add(MatrixInput::kQueryRank, *config.q_lora_rank, kPlace, {"q_b_proj"});
  }
  list.add(MatrixInput::kCacheLatent, config.kv_lora_rank, kPlace, {"kv_b_proj"});
  list.add(MatrixInput::kAttended, config.mla_heads * config.v_head_dim, kPlace, {"o_proj"});
}

void add_moe(const ModelConfig& config, InputList& list) {
  constexpr std::string_view kPlace = "block_sparse_moe.";
  const bool latent = config.latent_size.has_value();
  const bool shared = config.shared_experts > 0;
  const int64_t hidden = config.hidden_size;
  if (latent && shared) {
    list.add(
        MatrixInput::kFfn, hidden, kPlace,
        {"gate", "routed_expert_down_proj", "shared_experts.gate_proj", "shared_experts.up_proj"});
  } else if (latent) {
    list.add(MatrixInput::kFfn, hidden, kPlace, {"gate", "routed_expert_down_proj"});
  } else if (shared) {
    list.add(MatrixInput::kFfn, hidden, kPlace,
             {"gate", "shared_experts.gate_proj", "shared_experts.up_proj"});
  } else {
    list.add(MatrixInput::kFfn, hidden, kPlace, {"gate"});
  }
  if (latent) {
    list.add(MatrixInput::kRouted, *config.latent_size, kPlace, {"routed_expert_up_proj"});
  }
  if (shared) {
    list.add(MatrixInput::kInner, config.shared_intermediate_size(), kPlace,
             {"shared_experts.down_proj"});
  }
}

}  // namespace

std::string_view matrix_input_name(MatrixInput input) {
  return kNames[static_cast<size_t>(input)];
}

std::vector<SharedInput> matrix_inputs(const ModelConfig& config, int64_t layer) {
  const auto layers = static_cast<int64_t>(config.layers.size());
  K3_CHECK(layer >= 0 && layer <= layers);
  if (layer == layers) {
    return {{.kind = MatrixInput::kHead,
             .layer = layer,
             .width = config.hidden_size,
             .name = "head",
             .matrices = {"lm_head.weight"}}};
  }
  InputList list(layer);
  const LayerConfig& kinds = config.layers[static_cast<size_t>(layer)];
  if (kinds.attention == AttentionKind::kKda) {
    add_kda(config, list);
  } else {
    add_mla(config, list);
  }
  if (kinds.ffn == FfnKind::kMoe) {
    add_moe(config, list);
  } else {
    list.add(MatrixInput::kFfn, config.hidden_size, "mlp.", {"gate_proj", "up_proj"});
    list.add(MatrixInput::kInner, config.dense_intermediate_size, "mlp.", {"down_proj"});
  }
  return list.take();
}

}  // namespace k3
