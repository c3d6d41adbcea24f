// The fields of a ModelConfig by name and value, for programs that show or compare configs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/model_config.h"

namespace k3 {

// Every field, in the order and under the names of schema/README.md; values as text, "none" for a
// feature that the model lacks. Layers are one letter each, see layer_letters().
std::vector<std::pair<std::string_view, std::string>> config_fields(const ModelConfig& config);

// One letter a layer: K is KDA, M is MLA, lower case has a dense FFN.
std::string layer_letters(const ModelConfig& config);

}  // namespace k3
