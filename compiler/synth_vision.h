// The tensors of K3's vision tower and projector. The text model's importer counts and drops them,
// so only what makes checkpoints needs their names and shapes.
#pragma once

#include <vector>

#include "compiler/synth_tensors.h"

namespace k3 {

// In no particular order.
std::vector<SynthTensor> make_vision_tensors();
std::vector<SynthTensor> make_projector_tensors();

}  // namespace k3
