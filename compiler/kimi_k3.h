// Kimi K3 (and its small siblings of the same structure): from checkpoint to Model.
#pragma once

#include "compiler/checkpoint.h"
#include "passes/model.h"

namespace k3 {

// Whether config.json or the tensors show a feature that K3 alone has. Any one is enough, so that a
// damaged K3 is reported as damaged and not as unknown.
bool looks_like_kimi_k3(const Checkpoint& checkpoint);

// As import_tensors(): throws Error with the first problem and the number of all.
Model import_kimi_k3(const Checkpoint& checkpoint);

}  // namespace k3
