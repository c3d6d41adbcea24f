// Kimi K3's config.json as a ModelConfig.
#pragma once

#include "compiler/config_json.h"
#include "schema/model_config.h"

namespace k3 {

// The object that describes the text model: `text_config`, or the whole file where a text-only
// checkpoint has no such object.
ConfigObject text_config(const ConfigFile& file);

// Every field is read from the file. Throws Error naming the first one that is missing, out of
// range, contradicts another, or asks for something that the runtime does not implement.
ModelConfig read_kimi_k3_config(const ConfigFile& file);

// Checks what config.json says about packed experts: MXFP4 with 32 inputs a scale, as the numbers
// of `config` allow. Only for a checkpoint that has packed experts.
void check_kimi_k3_quantization(const ConfigFile& file, const ModelConfig& config);

}  // namespace k3
