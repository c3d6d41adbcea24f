// k3 and kimi-linear have the numbers of their releases, nano those of the bundled trained model.
//
// mid is for measuring: K3's proportions (latent half of hidden, heads of 128, experts that are
// whole pages) at a size that no cache holds and a small disk does.
//
// odd is for finding faults. In nano, hidden, the KDA width and others are all 256, so a buffer of
// the wrong width passes. Here no two widths are equal and none is a multiple of 160, the block of
// the integer formats; the residual stream has an odd number of channels. The inner width is one
// band of 256 and a rest, experts are one more than K3's, three layers, one of them MLA, have a
// dense FFN, the map ends K, M, M, and the last AttnRes block is half one. The scalars that K3
// shares with nano (SiTU's caps, the decay bound, the scaling factor, epsilon) are others, so that
// a constant in place of the config shows.
//
// kimi-linear-nano is Kimi-Linear's structure in the same spirit: small, no two widths equal.
#include "compiler/synth_presets.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "schema/error.h"
#include "schema/kimi_k3_release.h"
#include "schema/printable.h"

namespace k3 {
namespace {

constexpr int64_t kMostMapLayers = 4096;

// One letter a layer, as census prints them: K is KDA, M is MLA, lower case has a dense FFN.
std::vector<LayerConfig> layers_of(std::string_view map) {
  std::vector<LayerConfig> layers;
  for (const char letter : map) {
    layers.push_back(
        {.attention = letter == 'K' || letter == 'k' ? AttentionKind::kKda : AttentionKind::kMla,
         .ffn = letter == 'k' || letter == 'm' ? FfnKind::kDense : FfnKind::kMoe});
  }
  return layers;
}

// What follows from the other numbers, or is in no config.json.
SynthPreset completed(SynthPreset preset) {
  ModelConfig& config = preset.config;
  config.low_rank_norm_epsilon = config.rms_norm_epsilon;
  config.qk_norm_epsilon = 1e-6;
  config.renormalize = true;
  config.bos_token_id = preset.first_special_id();
  config.eos_token_id = preset.first_special_id() + kEosSpecial;
  config.pad_token_id = config.vocab_size - 1;
  return preset;
}

std::array<SynthPreset, 6> make_presets() {
  return {{
      {.name = "k3",
       .summary = "Kimi K3 as released: 96 shards, 1.56 TB",
       .special_tokens = 256,
       .a_log_entries = 128,
       .context_length = 1048576,
       .has_vision = true,
       .config = kimi_k3_release()},
      {.name = "kimi-linear",
       .summary = "Kimi-Linear-48B-A3B as released: 98 GB in 20 shards",
       .family = SynthFamily::kKimiLinear,
       .special_tokens = 256,
       .a_log_entries = 32,
       .context_length = 1048576,
       .config = {.hidden_size = 2304,
                  .vocab_size = 163840,
                  .layers = layers_of("kKKMKKKMKKKMKKKMKKKMKKKMKKM"),
                  .rms_norm_epsilon = 1e-5,
                  .kda_heads = 32,
                  .kda_head_dim = 128,
                  .conv_kernel = 4,
                  .decay_lower_bound = {},
                  .kda_gate_rank = 128,
                  .mla_heads = 32,
                  .q_lora_rank = {},
                  .kv_lora_rank = 512,
                  .qk_content_dim = 128,
                  .qk_extra_dim = 64,
                  .v_head_dim = 128,
                  .dense_intermediate_size = 9216,
                  .activation = Activation::kSilu,
                  .experts = 256,
                  .experts_per_token = 8,
                  .expert_intermediate_size = 1024,
                  .shared_experts = 1,
                  .latent_size = {},
                  .routed_scaling_factor = 2.446,
                  .attention_residual_block = {}}},
      {.name = "nano",
       .summary = "the shapes of examples/nano: 16 MB in 9 shards",
       .special_tokens = 16,
       .a_log_entries = 64,
       .context_length = 4096,
       .sorts_by_name = true,
       .adds_bos = true,
       .config = {.hidden_size = 256,
                  .vocab_size = 2048,
                  .layers = layers_of("kKKMKKKM"),
                  .rms_norm_epsilon = 1e-5,
                  .kda_heads = 4,
                  .kda_head_dim = 64,
                  .conv_kernel = 4,
                  .decay_lower_bound = -5.0,
                  .kda_gate_rank = {},
                  .mla_heads = 4,
                  .q_lora_rank = 96,
                  .kv_lora_rank = 64,
                  .qk_content_dim = 32,
                  .qk_extra_dim = 16,
                  .v_head_dim = 32,
                  .mla_output_gate = true,
                  .dense_intermediate_size = 512,
                  .activation = Activation::kSitu,
                  .situ_beta = 4.0,
                  .situ_linear_beta = 25.0,
                  .experts = 64,
                  .experts_per_token = 4,
                  .expert_intermediate_size = 64,
                  .shared_experts = 2,
                  .latent_size = 128,
                  .latent_norm = true,
                  .routed_scaling_factor = 1.0,
                  .attention_residual_block = 3}},
      {.name = "mid",
       .summary = "K3's proportions beyond any cache: 4.0 GB in 14 shards",
       .special_tokens = 256,
       .a_log_entries = 128,
       .context_length = 131072,
       .config = {.hidden_size = 1024,
                  .vocab_size = 32768,
                  .layers = layers_of("kKKMKKKMKKKMM"),
                  .rms_norm_epsilon = 1e-5,
                  .kda_heads = 8,
                  .kda_head_dim = 128,
                  .conv_kernel = 4,
                  .decay_lower_bound = -5.0,
                  .kda_gate_rank = {},
                  .mla_heads = 8,
                  .q_lora_rank = 384,
                  .kv_lora_rank = 256,
                  .qk_content_dim = 128,
                  .qk_extra_dim = 64,
                  .v_head_dim = 128,
                  .mla_output_gate = true,
                  .dense_intermediate_size = 4096,
                  .activation = Activation::kSitu,
                  .situ_beta = 4.0,
                  .situ_linear_beta = 25.0,
                  .experts = 720,
                  .experts_per_token = 16,
                  .expert_intermediate_size = 512,
                  .shared_experts = 2,
                  .latent_size = 512,
                  .latent_norm = true,
                  .routed_scaling_factor = 1.0,
                  .attention_residual_block = 4}},
      {.name = "odd",
       .summary = "every width different, 897 experts: 128 MB in 7 shards",
       .special_tokens = 24,
       .a_log_entries = 52,
       .context_length = 2000,
       .adds_bos = true,
       .config = {.hidden_size = 219,
                  .vocab_size = 1187,
                  .layers = layers_of("kmkKMM"),
                  .rms_norm_epsilon = 2e-5,
                  .kda_heads = 7,
                  .kda_head_dim = 52,
                  .conv_kernel = 4,
                  .decay_lower_bound = -4.5,
                  .kda_gate_rank = {},
                  .mla_heads = 5,
                  .q_lora_rank = 110,
                  .kv_lora_rank = 72,
                  .qk_content_dim = 28,
                  .qk_extra_dim = 13,
                  .v_head_dim = 34,
                  .mla_output_gate = true,
                  .dense_intermediate_size = 371,
                  .activation = Activation::kSitu,
                  .situ_beta = 3.5,
                  .situ_linear_beta = 20.5,
                  .experts = 897,
                  .experts_per_token = 6,
                  .expert_intermediate_size = 288,
                  .shared_experts = 2,
                  .latent_size = 96,
                  .latent_norm = true,
                  .routed_scaling_factor = 1.25,
                  .attention_residual_block = 4}},
      {.name = "kimi-linear-nano",
       .summary = "Kimi-Linear's structure, every width different: 27 MB in 1 shard",
       .family = SynthFamily::kKimiLinear,
       .special_tokens = 20,
       .a_log_entries = 5,
       .context_length = 3000,
       .config = {.hidden_size = 148,
                  .vocab_size = 941,
                  .layers = layers_of("kKKMKM"),
                  .rms_norm_epsilon = 2e-5,
                  .kda_heads = 5,
                  .kda_head_dim = 36,
                  .conv_kernel = 4,
                  .decay_lower_bound = {},
                  .kda_gate_rank = 36,
                  .mla_heads = 3,
                  .q_lora_rank = {},
                  .kv_lora_rank = 58,
                  .qk_content_dim = 25,
                  .qk_extra_dim = 11,
                  .v_head_dim = 31,
                  .dense_intermediate_size = 309,
                  .activation = Activation::kSilu,
                  .experts = 21,
                  .experts_per_token = 6,
                  .expert_intermediate_size = 267,
                  .shared_experts = 1,
                  .latent_size = {},
                  .routed_scaling_factor = 2.446,
                  .attention_residual_block = {}}},
  }};
}

void check_count(const char* what, int64_t count, int64_t least, int64_t most,
                 const SynthPreset& preset) {
  if (count >= least && count <= most) return;
  throw Error(what, ": is ", count, ", expected ", least, " to ", most, " for the preset ",
              preset.name);
}

}  // namespace

std::span<const SynthPreset> synth_presets() {
  static const std::array<SynthPreset, 6> presets = [] {
    auto made = make_presets();
    for (SynthPreset& preset : made) preset = completed(std::move(preset));
    return made;
  }();
  return presets;
}

const SynthPreset& find_synth_preset(std::string_view name) {
  std::string names;
  for (const SynthPreset& preset : synth_presets()) {
    if (preset.name == name) return preset;
    names.append(names.empty() ? "" : ", ").append(preset.name);
  }
  throw Error("preset ", name, ": unknown, expected one of ", names);
}

SynthPreset with_layers(const SynthPreset& preset, int64_t layers) {
  const auto most = static_cast<int64_t>(preset.config.layers.size());
  check_count("layers", layers, 1, most, preset);
  SynthPreset smaller = preset;
  smaller.config.layers.resize(static_cast<size_t>(layers));
  return smaller;
}

SynthPreset with_layer_map(const SynthPreset& preset, std::string_view map) {
  const auto is_dense = [](char letter) { return letter == 'k' || letter == 'm'; };
  const bool known = !map.empty() && map.find_first_not_of("KMkm") == std::string_view::npos;
  if (!known || !std::is_partitioned(map.begin(), map.end(), is_dense)) {
    throw Error("layer map: is \"", printable(map), "\", expected letters k and m, then K and M");
  }
  check_count("layer map: layers", std::ssize(map), 1, kMostMapLayers, preset);
  SynthPreset smaller = preset;
  smaller.config.layers = layers_of(map);
  return smaller;
}

SynthPreset with_experts(const SynthPreset& preset, int64_t experts) {
  check_count("experts", experts, preset.config.experts_per_token, preset.config.experts, preset);
  SynthPreset smaller = preset;
  smaller.config.experts = experts;
  return smaller;
}

SynthPreset with_vocabulary(const SynthPreset& preset, int64_t tokens) {
  constexpr int64_t kSingleBytes = 256;  // every vocabulary has them
  check_count("vocabulary", tokens, kSingleBytes + preset.special_tokens, preset.config.vocab_size,
              preset);
  SynthPreset smaller = preset;
  smaller.config.vocab_size = tokens;
  return completed(std::move(smaller));
}

}  // namespace k3
