// The fields of config.json that Kimi K3 and Kimi-Linear share, in name and in meaning.
#pragma once

#include "compiler/config_json.h"
#include "schema/model_config.h"

namespace k3 {

// Reads them from `text`, the object that describes the text model; `root`, the whole file, repeats
// some and must agree. What the families have apart is left at its default: the kind of decay, low
// ranks, output gates, activation, latent, attention residuals. Throws Error naming the first field
// that is missing, out of range, contradicts another, or asks for something that the runtime does
// not implement.
ModelConfig read_kimi_config(const ConfigObject& root, const ConfigObject& text);

}  // namespace k3
