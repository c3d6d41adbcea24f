// Writes the shards and the index of a made checkpoint into a folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/synth_tensors.h"
#include "passes/progress.h"

namespace k3 {

// Throws Error when the disk that `folder` is to be made on has no room for `data_bytes` and the
// small files beside them.
void check_disk_space(const std::string& folder, int64_t data_bytes);

// A shard's header as the release has it: the eight bytes of its length, JSON without spaces and
// without metadata, padded with spaces to a multiple of eight.
std::string safetensors_header(const std::vector<SynthTensor>& tensors);

// Writes all shards. With `headers_only` their data are holes, which read as zeros and take no
// space. Throws Error.
void write_synth_shards(const std::string& folder, const SynthShards& shards, uint64_t seed,
                        bool headers_only, Progress& progress);

// Writes model.safetensors.index.json. Throws Error.
void write_synth_index(const std::string& folder, const SynthShards& shards);

// Writes a small file. Throws Error.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace k3
