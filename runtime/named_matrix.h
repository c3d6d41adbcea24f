// The matrices of a layer by their names in the pack, for programs that exchange or adjust single
// ones. The forward pass itself names members.
#pragma once

#include <string_view>

#include "runtime/weights.h"

namespace k3 {

struct MatrixPlace {
  int64_t layer = 0;
  MatrixView* view = nullptr;
};

// The view of the trunk matrix "model.layers.N.NAME.weight" in `weights`, where writing to it
// changes what the forward pass multiplies; a null view when there is no such matrix, which holds
// for vectors, embedding, head and experts too.
MatrixPlace find_matrix(Weights& weights, std::string_view name);

}  // namespace k3
