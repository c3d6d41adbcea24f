// Kimi-Linear (48B-A3B and its small siblings of the same structure): from checkpoint to Model.
#pragma once

#include "compiler/checkpoint.h"
#include "passes/model.h"

namespace k3 {

// Whether config.json or the tensors show a feature of the Kimi models with linear attention. Kimi
// K3 has the same config field, so its row comes first in the families table.
bool looks_like_kimi_linear(const Checkpoint& checkpoint);

// As import_tensors(): throws Error with the first problem and the number of all.
Model import_kimi_linear(const Checkpoint& checkpoint);

}  // namespace k3
