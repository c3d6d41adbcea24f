// Whether a tuning belongs to what is compiled.
#pragma once

#include "passes/model.h"
#include "passes/options.h"

namespace k3 {

// `model` is encoded. Throws Error unless the pack would have the payload that its tuning was made
// for, had it not been tuned: the same checkpoint, the same options, the same codes.
void check_tuning(const Model& model, const Options& options);

}  // namespace k3
