// A vocabulary for a made checkpoint: tiktoken.model and tokenizer_config.json.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/synth_presets.h"

namespace k3 {

// The ranks of a byte-pair vocabulary, one a line: the 256 single bytes, then tokens each of which
// is two earlier ones joined. They look like pieces of words, so that a tokenizer has merging to
// do on ordinary text; no text was counted for them.
std::string synth_tiktoken_model(const SynthPreset& preset, uint64_t seed);

// Names the special tokens as the release does, as far as the preset has room for them.
std::string synth_tokenizer_config_json(const SynthPreset& preset);

}  // namespace k3
