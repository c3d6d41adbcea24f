// The gains of norms by their names in the pack, as named_matrix.h has the matrices.
#pragma once

#include <string_view>

#include "runtime/weights.h"

namespace k3 {

// What points to the gain of the norm "model.layers.N.NAMEnorm.weight", or of one behind the
// layers, in `weights`, where another pointer changes what the forward pass multiplies with. Null
// when the model has no such norm or its part is not in memory.
const float** find_gain(Weights& weights, std::string_view name);

}  // namespace k3
