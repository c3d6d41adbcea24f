// Kimi K3 (and its small siblings of the same structure): from checkpoint to Model.
#pragma once

#include "compiler/checkpoint.h"
#include "passes/model.h"

namespace k3 {

// Whether config.json or the tensors show a feature that K3 alone has. Any one is enough, so that a
// damaged K3 is reported as damaged and not as unknown.
bool looks_like_kimi_k3(const Checkpoint& checkpoint);

// Builds the Model: config, every trunk tensor and expert with its source, the files the runtime
// needs, and the counts of what a text model leaves out. The plan fields say "as in the
// checkpoint". All tensors are checked before anything is reported: throws Error with the first
// that is missing, surplus or of another type or shape, and with the number of further ones.
// Of a checkpoint without data, a Model to be counted: no shards, no side files, and the zeros
// behind A_log unread.
Model import_kimi_k3(const Checkpoint& checkpoint);

}  // namespace k3
