// model.safetensors.index.json, which says in which shard each tensor lies.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "schema/file.h"

namespace k3 {

// Streams the file, K3's has 58 MB, and calls `entry(tensor, shard)` for each member of weight_map
// in the file's order; both texts are valid during the call alone. Returns metadata.total_size if
// it is there. Throws Error when the file is not JSON of this form or names weight_map, metadata or
// total_size twice; tensors named twice are the caller's to find.
std::optional<int64_t> read_shard_index(
    const File& file,
    const std::function<void(std::string_view tensor, std::string_view shard)>& entry);

}  // namespace k3
