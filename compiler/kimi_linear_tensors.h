// Every tensor of a Kimi-Linear checkpoint as data, in the terms of kimi_k3_tensors.h.
#pragma once

#include <span>

#include "compiler/kimi_k3_tensors.h"

namespace k3 {

// All tensors but the routed experts', which are kimi_k3_expert_rows(Format::kBf16). No prefix.
std::span<const TensorRow> kimi_linear_trunk_rows();

}  // namespace k3
