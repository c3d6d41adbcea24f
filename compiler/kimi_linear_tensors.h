// Every tensor of a Kimi-Linear checkpoint as data.
#pragma once

#include <span>

#include "compiler/tensor_rows.h"

namespace k3 {

// All tensors but the routed experts', which are expert_rows(Format::kBf16). No prefix.
std::span<const TensorRow> kimi_linear_trunk_rows();

}  // namespace k3
