// Every tensor of a Kimi K3 checkpoint as data.
#pragma once

#include <span>

#include "compiler/tensor_rows.h"

namespace k3 {

// All tensors of the text model but the routed experts', which are expert_rows().
std::span<const TensorRow> kimi_k3_trunk_rows();

}  // namespace k3
