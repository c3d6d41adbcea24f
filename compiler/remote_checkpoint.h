// A checkpoint behind a URL, opened from its headers alone.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/checkpoint.h"
#include "compiler/remote_header.h"
#include "compiler/safetensors.h"

namespace k3 {

// The defaults, with the token of the environment's HF_TOKEN if it is set.
RemoteOptions remote_options_from_environment();

// Reads URL/config.json, the index, and the header of every shard that the index names; of a
// checkpoint without an index, that of model.safetensors. A model's page on huggingface.co stands
// for its files: https://huggingface.co/ORG/NAME[/tree/REVISION]. The Checkpoint has no data.
// Throws Error. A shard that the index does not name goes unseen: a web server lists no folder.
Checkpoint open_remote_checkpoint(const std::string& url, const RemoteOptions& options);

struct RemoteShard {
  std::string url;
  int64_t file_bytes = 0;
  SafetensorsHeader header;
};

// Whether the last part of a URL is the name of a .safetensors file.
bool is_shard_url(const std::string& url);

// Reads the header of the one file at `url`. Throws Error.
RemoteShard read_remote_shard(const std::string& url, const RemoteOptions& options);

}  // namespace k3
