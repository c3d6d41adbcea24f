#include "runtime/named_gain.h"

#include <charconv>

namespace k3 {
namespace {

struct Place {
  std::string_view name;
  const float** gain;
};

const float** find_in_layer(LayerWeights& w, std::string_view name) {
  const Place places[] = {
      {"input_layernorm", &w.input_norm},
      {"post_attention_layernorm", &w.post_attention_norm},
      {"self_attention_res_norm", &w.attention_res_norm},
      {"mlp_res_norm", &w.mlp_res_norm},
      {"self_attn.o_norm", &w.kda.o_norm},
      {"self_attn.q_a_layernorm", &w.mla.q_a_norm},
      {"self_attn.kv_a_layernorm", &w.mla.kv_a_norm},
      {"block_sparse_moe.routed_expert_norm", &w.moe.norm},
  };
  for (const Place& place : places) {
    if (place.name == name) return place.gain;
  }
  return nullptr;
}

}  // namespace

const float** find_gain(Weights& weights, std::string_view name) {
  constexpr std::string_view kModel = "model.";
  constexpr std::string_view kLayers = "layers.";
  constexpr std::string_view kEnd = ".weight";
  if (!name.starts_with(kModel) || !name.ends_with(kEnd)) return nullptr;
  name.remove_prefix(kModel.size());
  name.remove_suffix(kEnd.size());
  const float** gain = nullptr;
  if (name == "norm") {
    gain = &weights.final_norm;
  } else if (name == "output_attn_res_norm") {
    gain = &weights.output_res_norm;
  } else if (name.starts_with(kLayers)) {
    name.remove_prefix(kLayers.size());
    size_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    name.remove_prefix(static_cast<size_t>(end - name.data()));
    if (error != std::errc() || layer >= weights.layers.size() || !name.starts_with('.')) {
      return nullptr;
    }
    gain = find_in_layer(weights.layers[layer], name.substr(1));
  }
  return gain == nullptr || *gain == nullptr ? nullptr : gain;
}

}  // namespace k3
