// The result of k3exec propagate, for people, programs and as a picture.
#pragma once

#include <ostream>
#include <string>

#include "runtime/error_growth.h"
#include "schema/model_config.h"

namespace k3 {

// The name of a branch in tables and JSON: "kda", "mla", "dense", "shared", "routed".
std::string_view branch_name(Branch branch);

void print_growth(const ErrorGrowth& growth, const ModelConfig& config, std::ostream& out);
void write_growth(const ErrorGrowth& growth, const ModelConfig& config, std::ostream& out);

// Growth by layer: of the real error, of random ones, in the worst direction; and what the
// compressed model's error is before each layer.
std::string growth_chart(const ErrorGrowth& growth);

}  // namespace k3
