#include "compiler/shard_index.h"

#include <string>

#include "schema/json_scanner.h"
#include "schema/error.h"

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

}  // namespace

std::optional<int64_t> read_shard_index(
    const File& file,
    const std::function<void(std::string_view tensor, std::string_view shard)>& entry) {
  JsonScanner json(file);
  std::optional<int64_t> total_bytes;
  bool map_seen = false;
  bool metadata_seen = false;
  const auto once = [&file](bool seen, std::string_view field) {
    if (seen) throw Error(file.path(), ": ", field, ": is there twice");
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
  if (!map_seen) throw Error(file.path(), ": weight_map: missing");
  return total_bytes;
}

}  // namespace k3
