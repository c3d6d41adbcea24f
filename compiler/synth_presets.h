// The models that `k3c synth` makes, as data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schema/model_config.h"

namespace k3 {

enum class SynthFamily : uint8_t { kKimiK3, kKimiLinear };

// Ids of special tokens, counted from the first one.
inline constexpr int64_t kEosSpecial = 2;
inline constexpr int64_t kMediaPadSpecial = 21;

struct SynthPreset {
  std::string_view name;
  std::string_view summary;  // one line for --help
  SynthFamily family = SynthFamily::kKimiK3;
  int64_t special_tokens = 0;  // the vocabulary's last ids
  int64_t a_log_entries = 0;   // as stored; those behind the heads are zero
  int64_t context_length = 0;  // in tokens
  bool has_vision = false;
  // Whether tensors lie in a shard by name alone, as in the bundled nano, or as safetensors' own
  // writer puts them: F32, then BF16, then U8, each by name.
  bool sorts_by_name = false;
  bool adds_bos = false;  // whether tokenizer_config.json tells to open a text with BOS
  ModelConfig config;

  int64_t first_special_id() const { return config.vocab_size - special_tokens; }
};

std::span<const SynthPreset> synth_presets();

// The preset of that name. Throws Error, naming all, when there is none.
const SynthPreset& find_synth_preset(std::string_view name);

// A preset made smaller; what is left keeps its widths. Each throws Error for what the preset
// cannot become.
//
// Its first `layers` layers only.
SynthPreset with_layers(const SynthPreset& preset, int64_t layers);
// Other layers: a letter each, as census prints them. K is KDA, M is MLA, lower case has a dense
// FFN; those come first.
SynthPreset with_layer_map(const SynthPreset& preset, std::string_view map);
// The first `experts` experts of each layer only, but no fewer than a token uses.
SynthPreset with_experts(const SynthPreset& preset, int64_t experts);
// The first tokens and the special ones, `tokens` in all.
SynthPreset with_vocabulary(const SynthPreset& preset, int64_t tokens);

}  // namespace k3
