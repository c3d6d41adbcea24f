#include "runtime/named_matrix.h"

#include <charconv>
#include <utility>

namespace k3 {
namespace {

MatrixView* find_kda(KdaWeights& w, std::string_view name) {
  const std::pair<std::string_view, MatrixView*> places[] = {
      {"q_proj", &w.q_proj},     {"k_proj", &w.k_proj},     {"v_proj", &w.v_proj},
      {"f_a_proj", &w.f_a_proj}, {"f_b_proj", &w.f_b_proj}, {"b_proj", &w.b_proj},
      {"g_proj", &w.g_proj},     {"g_a_proj", &w.g_a_proj}, {"g_b_proj", &w.g_b_proj},
      {"o_proj", &w.o_proj}};
  for (const auto& [place, view] : places) {
    if (place == name) return view;
  }
  return nullptr;
}

MatrixView* find_mla(MlaWeights& w, std::string_view name) {
  const std::pair<std::string_view, MatrixView*> places[] = {
      {"q_proj", &w.q_proj},       {"q_a_proj", &w.q_a_proj},
      {"q_b_proj", &w.q_b_proj},   {"kv_a_proj_with_mqa", &w.kv_a_proj},
      {"kv_b_proj", &w.kv_b_proj}, {"g_proj", &w.g_proj},
      {"o_proj", &w.o_proj}};
  for (const auto& [place, view] : places) {
    if (place == name) return view;
  }
  return nullptr;
}

MatrixView* find_mlp(MlpWeights& w, std::string_view name) {
  if (name == "gate_proj") return &w.gate_proj;
  if (name == "up_proj") return &w.up_proj;
  return name == "down_proj" ? &w.down_proj : nullptr;
}

MatrixView* find_moe(MoeWeights& w, std::string_view name) {
  constexpr std::string_view kShared = "shared_experts.";
  if (name.starts_with(kShared)) return find_mlp(w.shared, name.substr(kShared.size()));
  if (name == "gate") return &w.gate;
  if (name == "routed_expert_down_proj") return &w.down_proj;
  return name == "routed_expert_up_proj" ? &w.up_proj : nullptr;
}

bool take_front(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

}  // namespace

MatrixPlace find_matrix(Weights& weights, std::string_view name) {
  constexpr std::string_view kEnd = ".weight";
  if (!take_front(name, "model.layers.") || !name.ends_with(kEnd)) return {};
  name.remove_suffix(kEnd.size());
  size_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (error != std::errc() || layer >= weights.layers.size() || !take_front(name, ".")) return {};

  LayerWeights& w = weights.layers[layer];
  MatrixView* view = nullptr;
  if (take_front(name, "self_attn.")) {
    const bool is_kda = weights.config().layers[layer].attention == AttentionKind::kKda;
    view = is_kda ? find_kda(w.kda, name) : find_mla(w.mla, name);
  } else if (take_front(name, "mlp.")) {
    view = find_mlp(w.dense, name);
  } else if (take_front(name, "block_sparse_moe.")) {
    view = find_moe(w.moe, name);
  }
  // A member that this model lacks is there, but empty.
  if (view == nullptr || view->rows == 0) return {};
  return {static_cast<int64_t>(layer), view};
}

}  // namespace k3
