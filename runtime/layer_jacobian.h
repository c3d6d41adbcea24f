// The direction in which one layer is most sensitive at one token, from its whole Jacobian.
#pragma once

#include <cstdint>

#include "runtime/layerwise_model.h"

namespace k3 {

// The greatest growth (error_growth.h) that any small error in the state at position `token` can
// have, with what came before it untouched: |s| / |F(s)| times the largest singular value of dF/ds,
// made by central differences, two runs of the layer per value of the state. `stream` [tokens,
// hidden] is the input of `layer`, which `model` holds.
double worst_growth(LayerwiseModel& model, int64_t layer, const ResidualStream& stream,
                    int64_t token);

}  // namespace k3
