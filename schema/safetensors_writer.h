// Writes small safetensors files: dumps and sequence states, which any Python can then read.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schema/dtype.h"
#include "schema/shape.h"

namespace k3 {

struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::span<const std::byte> bytes;  // shape x dtype, row-major, little-endian
};

// Writes the tensors in the given order to a neighbour of `path` and renames it into place.
// Metadata are strings. Throws Error; then nothing is left behind and an older file of that name is
// untouched.
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace k3
