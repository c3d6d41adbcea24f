// The architecture of the released Kimi K3, for those who have to speak of it without its
// checkpoint: forecasts, and checkpoints made in its shape.
#pragma once

#include "schema/model_config.h"

namespace k3 {

// Every number of its config.json; a test compares them.
ModelConfig kimi_k3_release();

}  // namespace k3
