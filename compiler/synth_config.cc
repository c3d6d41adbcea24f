// The released text is filled in rather than written by a JsonWriter, so that what differs between
// presets stands out and what the release has besides is kept to the byte.
#include "compiler/synth_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include "compiler/synth_config_text.h"
#include "schema/error.h"

namespace k3 {
namespace {

using Fields = std::map<std::string, std::string, std::less<>>;

// As the library that wrote the release prints numbers: 4.0, -5.0, 1e-05.
std::string number_text(double number) {
  std::array<char, 32> digits{};
  char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// The layers of one kind, counted from 1, one a line as the release indents them.
std::string layer_list(const ModelConfig& config, AttentionKind kind, std::string_view indent) {
  std::string text;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].attention != kind) continue;
    text += text.empty() ? "[\n" : ",\n";
    text.append(indent).append("  ").append(std::to_string(i + 1));
  }
  if (text.empty()) return "[]";
  return text.append("\n").append(indent).append("]");
}

int64_t dense_layers(const ModelConfig& config) {
  int64_t dense = 0;
  for (const LayerConfig& layer : config.layers) dense += layer.ffn == FfnKind::kDense ? 1 : 0;
  return dense;
}

Fields fields_of(const SynthPreset& preset) {
  const ModelConfig& config = preset.config;
  const std::string_view indent =
      preset.family == SynthFamily::kKimiK3 ? "      " : "    ";  // of the attention lists
  Fields fields = {
      {"epsilon", number_text(config.rms_norm_epsilon)},
      {"scaling", number_text(config.routed_scaling_factor)},
      {"situ_beta", number_text(config.situ_beta)},
      {"situ_linear_beta", number_text(config.situ_linear_beta)},
      {"decay_bound", number_text(config.decay_lower_bound.value_or(0))},
      {"full_attn_layers", layer_list(config, AttentionKind::kMla, indent)},
      {"kda_layers", layer_list(config, AttentionKind::kKda, indent)},
  };
  const auto add = [&fields](const char* name, int64_t number) {
    fields.emplace(name, std::to_string(number));
  };
  add("hidden", config.hidden_size);
  add("vocab", config.vocab_size);
  add("layers", static_cast<int64_t>(config.layers.size()));
  add("dense_layers", dense_layers(config));
  add("residual_block", config.attention_residual_block.value_or(0));
  add("kda_heads", config.kda_heads);
  add("kda_head_dim", config.kda_head_dim);
  add("conv_kernel", config.conv_kernel);
  add("mla_heads", config.mla_heads);
  add("q_rank", config.q_lora_rank.value_or(0));
  add("kv_rank", config.kv_lora_rank);
  add("content_dim", config.qk_content_dim);
  add("extra_dim", config.qk_extra_dim);
  add("value_dim", config.v_head_dim);
  add("dense_inner", config.dense_intermediate_size);
  add("experts", config.experts);
  add("experts_per_token", config.experts_per_token);
  add("expert_inner", config.expert_intermediate_size);
  add("shared_experts", config.shared_experts);
  add("latent", config.expert_width());
  add("context", preset.context_length);
  add("bos", config.bos_token_id);
  add("eos", config.eos_token_id);
  add("pad", config.pad_token_id);
  add("media_pad", preset.first_special_id() + kMediaPadSpecial);
  return fields;
}

void append_filled(std::string& out, std::string_view line, const Fields& fields) {
  constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyz_";
  while (true) {
    const size_t mark = line.find('$');
    out.append(line.substr(0, mark));
    if (mark == std::string_view::npos) return;
    line.remove_prefix(mark + 1);
    const std::string_view name = line.substr(0, line.find_first_not_of(kNameLetters));
    const auto field = fields.find(name);
    K3_CHECK(field != fields.end());
    out.append(field->second);
    line.remove_prefix(name.size());
  }
}

}  // namespace

std::string synth_config_json(const SynthPreset& preset) {
  const Fields fields = fields_of(preset);
  std::string_view text =
      preset.family == SynthFamily::kKimiK3 ? kimi_k3_config_text() : kimi_linear_config_text();
  text = text.substr(1, text.size() - 2);
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const char mark = line.front();
    if (mark == (preset.has_vision ? '!' : '?')) continue;
    append_filled(out, mark == '!' || mark == '?' ? line.substr(1) : line, fields);
    out += '\n';
  }
  out.pop_back();  // the released file ends with its brace
  return out;
}

std::string synth_generation_config_json(const SynthPreset& preset) {
  std::string out;
  out.append("{\n  \"max_length\": ").append(std::to_string(preset.context_length));
  out.append(",\n  \"eos_token_id\": ").append(std::to_string(preset.config.eos_token_id));
  out.append("\n}");
  return out;
}

}  // namespace k3
