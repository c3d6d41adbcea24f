#include "compiler/shard_index.h"

#include <string>

#include "schema/error.h"
#include "schema/json_scanner.h"
#include "schema/printable.h"

namespace k3 {
namespace {

// Reads an object; `read_member` consumes each member with its key.
template <class ReadMember>
void read_object(JsonScanner& json, const ReadMember& read_member) {
  json.expect('{');
  if (json.accept('}')) return;
  do {
    read_member();
  } while (json.accept(','));
  json.expect('}');
}

std::optional<int64_t> read_index(const std::string& path, JsonScanner& json,
                                  const ShardIndexEntry& entry) {
  std::optional<int64_t> total_bytes;
  bool map_seen = false;
  bool metadata_seen = false;
  const auto once = [&path](bool seen, std::string_view field) {
    if (seen) throw Error(path, ": ", field, ": is there twice");
  };

  std::string tensor;
  const auto read_entry = [&] {
    tensor = json.string();
    json.expect(':');
    entry(tensor, json.string());
  };
  const auto read_metadata = [&] {
    const bool is_total = json.string() == "total_size";
    json.expect(':');
    if (!is_total) return json.skip_value();
    once(total_bytes.has_value(), "metadata.total_size");
    total_bytes = json.natural();
  };
  read_object(json, [&] {
    const std::string field(json.string());
    json.expect(':');
    if (field == "weight_map") {
      once(map_seen, field);
      map_seen = true;
      read_object(json, read_entry);
    } else if (field == "metadata") {
      once(metadata_seen, field);
      metadata_seen = true;
      read_object(json, read_metadata);
    } else {
      json.skip_value();
    }
  });
  json.expect_end();
  if (!map_seen) throw Error(path, ": weight_map: missing");
  return total_bytes;
}

}  // namespace

std::optional<int64_t> read_shard_index(const File& file, const ShardIndexEntry& entry) {
  JsonScanner json(file);
  return read_index(file.path(), json, entry);
}

std::optional<int64_t> read_shard_index(const std::string& path, std::string_view text,
                                        const ShardIndexEntry& entry) {
  JsonScanner json(path, text);
  return read_index(path, json, entry);
}

void check_shard_name(const std::string& index_path, std::string_view tensor,
                      std::string_view shard) {
  const bool leaves = shard.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos;
  if (!leaves && shard.ends_with(".safetensors")) return;
  throw Error(index_path, ": tensor ", printable(tensor), ": lies in \"", printable(shard),
              "\", expected the name of a .safetensors file in this folder");
}

}  // namespace k3
