// Whether two packs can be compared token by token.
#pragma once

#include "schema/pack_reader.h"

namespace k3 {

// Throws Error naming both unless the same ids mean the same text in both and the layers are of the
// same kinds with routing by the same experts.
void check_comparable(const PackReader& pack, const PackReader& other);

}  // namespace k3
