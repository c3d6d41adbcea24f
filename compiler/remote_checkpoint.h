// A checkpoint behind a URL, opened from its headers alone.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/checkpoint.h"
#include "compiler/remote_header.h"
#include "schema/safetensors.h"

namespace k3 {

// The defaults, with the token of the environment's HF_TOKEN if it is set.
RemoteOptions remote_options_from_environment();

// `url` without a final slash; if it is a model's page https://huggingface.co/ORG/NAME, its
// /tree/REVISION or /blob/REVISION/FILE, the URL of the files that the page shows.
std::string files_of_page(std::string url);

// Reads config.json under files_of_page(url), the index, and the header of every shard that the
// index names; of a checkpoint without an index, that of model.safetensors. The Checkpoint has no
// data. Throws Error. A shard that the index does not name goes unseen: a web server lists no
// folder.
Checkpoint open_remote_checkpoint(const std::string& url, const RemoteOptions& options);

struct RemoteShard {
  std::string url;
  int64_t file_bytes = 0;
  SafetensorsHeader header;
};

// Whether the last part of a URL is the name of a .safetensors file.
bool is_shard_url(const std::string& url);

// Reads the header of the one file at files_of_page(url). Throws Error.
RemoteShard read_remote_shard(const std::string& url, const RemoteOptions& options);

}  // namespace k3
