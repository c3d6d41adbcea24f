// config.json and generation_config.json of a made checkpoint.
#pragma once

#include <string>

#include "compiler/synth_presets.h"

namespace k3 {

// The config.json of the preset's family with the preset's numbers. For the preset k3 it is the
// released file, byte for byte.
std::string synth_config_json(const SynthPreset& preset);

std::string synth_generation_config_json(const SynthPreset& preset);

}  // namespace k3
