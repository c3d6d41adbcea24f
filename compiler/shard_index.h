// model.safetensors.index.json, which says in which shard each tensor lies.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "schema/file.h"

namespace k3 {

// Streams the file, K3's has 58 MB, and calls `entry(tensor, shard)` for each member of weight_map
// in the file's order; both texts are valid during the call alone. Returns metadata.total_size if
// it is there. Throws Error when the file is not JSON of this form or names weight_map, metadata or
// total_size twice; tensors named twice are the caller's to find.
using ShardIndexEntry = std::function<void(std::string_view tensor, std::string_view shard)>;
std::optional<int64_t> read_shard_index(const File& file, const ShardIndexEntry& entry);

// The same on a text in memory; `path` is for messages.
std::optional<int64_t> read_shard_index(const std::string& path, std::string_view text,
                                        const ShardIndexEntry& entry);

// Throws Error unless `shard`, where the index says that `tensor` lies, is the plain name of a
// .safetensors file: it may become part of a path or of a URL, and must not lead anywhere else.
void check_shard_name(const std::string& index_path, std::string_view tensor,
                      std::string_view shard);

}  // namespace k3
