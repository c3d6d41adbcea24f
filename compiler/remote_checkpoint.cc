// A folder says which shards there are; a web server does not, so here the index comes first: it
// names the shards, their headers are fetched, and then index and headers are held against each
// other by the very checks that a folder gets. The index is read twice for that, 58 MB for K3, and
// stays in memory between the two; each header is parsed as it arrives and its text dropped.
#include "compiler/remote_checkpoint.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/config_json.h"
#include "compiler/remote_address.h"
#include "compiler/shard_index.h"
#include "schema/error.h"

namespace k3 {
namespace {

// Four times K3's.
constexpr int64_t kLargestRemoteIndex = int64_t{256} << 20;
// A hundred times K3's; more would be a day of requests that somebody else chose.
constexpr size_t kMostShards = 10'000;
constexpr std::string_view kShardSuffix = ".safetensors";

// Every byte but those that have no meaning of their own anywhere in a URL.
std::string escaped(std::string_view name) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string text;
  for (const char c : name) {
    if (kPlain.find(c) != std::string_view::npos) {
      text += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    text.append({'%', kHex[byte >> 4], kHex[byte & 15u]});
  }
  return text;
}

std::vector<std::string> shards_of_index(const std::string& path, std::string_view index) {
  std::set<std::string, std::less<>> names;
  std::string latest;  // neighbours mostly lie in one shard
  read_shard_index(path, index, [&](std::string_view tensor, std::string_view shard) {
    if (!latest.empty() && shard == latest) return;
    check_shard_name(path, tensor, shard);
    latest = shard;
    names.insert(latest);
    if (names.size() > kMostShards) throw Error(path, ": names more than ", kMostShards, " shards");
  });
  if (names.empty()) throw Error(path, ": names no shard");
  return {names.begin(), names.end()};
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::string files_of_page(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  constexpr std::string_view kSite = "https://huggingface.co/";
  if (!url.starts_with(kSite)) return url;
  const size_t name = url.find('/', kSite.size());
  if (name == std::string::npos) return url;
  const size_t page = url.find('/', name + 1);
  if (page == std::string::npos) return url + "/resolve/main";
  for (const std::string_view kind : {"/tree/", "/blob/"}) {
    if (url.compare(page, kind.size(), kind) == 0) url.replace(page, kind.size(), "/resolve/");
  }
  return url;
}

RemoteOptions remote_options_from_environment() {
  RemoteOptions options;
  if (const char* token = std::getenv("HF_TOKEN")) options.token = token;
  return options;
}

Checkpoint open_remote_checkpoint(const std::string& url, const RemoteOptions& options) {
  const std::string folder = files_of_page(url);
  const auto in_folder = [&folder](std::string_view name) { return folder + '/' + escaped(name); };
  RemoteReader reader(folder, options);

  const std::string config_url = in_folder("config.json");
  const std::optional<std::string> config = reader.read_whole(config_url, kLargestConfigFile);
  if (!config) {
    throw Error(config_url, ": answered 404, expected the config.json of a checkpoint");
  }
  const std::string index_url = in_folder("model.safetensors.index.json");
  CheckpointHeaders headers{folder,
                            ConfigFile(config_url, bytes_of(*config)),
                            index_url,
                            reader.read_whole(index_url, kLargestRemoteIndex),
                            {}};
  const std::vector<std::string> names = headers.index
                                             ? shards_of_index(index_url, *headers.index)
                                             : std::vector<std::string>{"model.safetensors"};

  std::vector<std::string> urls;
  for (const std::string& name : names) {
    urls.push_back(in_folder(name));
    headers.shards.push_back({name, urls.back(), 0, {}});
  }
  reader.read_headers(urls, [&](size_t number, int64_t file_bytes, std::string_view json) {
    CheckpointHeaders::Shard& shard = headers.shards[number];
    shard.file_bytes = file_bytes;
    const SafetensorsHeader header = parse_safetensors_header(shard.path, json, file_bytes);
    shard.header = header;  // a copy: unlike what was parsed, it holds no spare memory
  });
  return Checkpoint(std::move(headers));
}

bool is_shard_url(const std::string& url) {
  return url.ends_with(kShardSuffix);
}

RemoteShard read_remote_shard(const std::string& url, const RemoteOptions& options) {
  RemoteShard shard{files_of_page(url), 0, {}};
  RemoteReader reader(shard.url, options);
  reader.read_headers({shard.url}, [&](size_t, int64_t file_bytes, std::string_view json) {
    shard.file_bytes = file_bytes;
    shard.header = parse_safetensors_header(shard.url, json, file_bytes);
  });
  return shard;
}

}  // namespace k3
