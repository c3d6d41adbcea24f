// The table of model families that k3c reads. Adding one is a row here and its files.
//
// (schema/family.h is about something else: the families of tensors inside one model.)
#pragma once

#include <span>
#include <string_view>

#include "compiler/checkpoint.h"
#include "passes/model.h"

namespace k3 {

struct ModelFamily {
  std::string_view name;
  std::string_view features;  // what recognises() looks for, for messages
  bool (*recognises)(const Checkpoint& checkpoint);
  Model (*import)(const Checkpoint& checkpoint);
};

std::span<const ModelFamily> model_families();

// Imports by the first family that recognises the checkpoint. Throws Error saying what was looked
// for when none does.
Model import_model(const Checkpoint& checkpoint);

}  // namespace k3
