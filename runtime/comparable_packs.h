// Whether two packs can be compared token by token.
#pragma once

#include "schema/pack_reader.h"

namespace k3 {

// Throws Error naming both unless the same ids mean the same text in both and the layers are of the
// same kinds with routing by the same experts.
void check_comparable(const PackReader& pack, const PackReader& other);

// Throws Error naming both when one is rotated otherwise than the other: their vectors inside then
// have other coordinates, and only logits can be compared.
void check_same_basis(const PackReader& pack, const PackReader& other);

}  // namespace k3
