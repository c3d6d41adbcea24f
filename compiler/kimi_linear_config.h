// Kimi-Linear's config.json as a ModelConfig.
#pragma once

#include "compiler/config_json.h"
#include "schema/model_config.h"

namespace k3 {

// Every field is read from the file, which is flat. What this family lacks must not be asked for.
// Throws Error naming the first field that is missing, out of range, contradicts another, or asks
// for something that the runtime does not implement.
ModelConfig read_kimi_linear_config(const ConfigFile& file);

}  // namespace k3
