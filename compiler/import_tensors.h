// From a checkpoint and the table of the tensors it must hold to a Model: what the importers of all
// families share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/checkpoint.h"
#include "compiler/tensor_rows.h"
#include "passes/model.h"

namespace k3 {

// Tensors that a text model leaves out: counted, not read.
struct LeftOutPart {
  std::string_view prefix;
  Family family;
};

// What a family says about its checkpoints.
struct TensorRules {
  std::string_view family;  // its name in the families table
  std::string prefix;       // in front of every tensor's name but the left-out ones'
  std::span<const TensorRow> trunk_rows;
  Format expert_format = Format::kBf16;
  // Whether a tensor whose row has a dimension of one may come with more or fewer of them.
  bool ones_are_free = false;
  std::span<const LeftOutPart> left_out;
};

// Whether the name of any tensor satisfies `condition`.
template <class Condition>
bool any_name(const Checkpoint& checkpoint, const Condition& condition) {
  for (int64_t i = 0; i < checkpoint.tensors(); ++i) {
    if (condition(checkpoint.tensor(i).name)) return true;
  }
  return false;
}

// Builds the Model: config, every trunk tensor and expert with its source, the files the runtime
// needs, and the counts of what was left out. The plan fields say "as in the checkpoint". All
// tensors are checked before anything is reported: throws Error with the first that is missing,
// surplus or of another type or shape, and with the number of further ones.
Model import_tensors(const Checkpoint& checkpoint, const TensorRules& rules,
                     const ModelConfig& config);

}  // namespace k3
