#include "compiler/trace_merge.h"

#include <filesystem>

#include "schema/error.h"
#include "schema/trace_reader.h"
#include "schema/trace_writer.h"

namespace k3 {
namespace {

// The header of all traces together.
TraceHeader merged_header(const std::vector<std::string>& traces) {
  TraceHeader merged = TraceReader(traces.front()).header();
  for (const std::string& path : traces) {
    const TraceHeader next = TraceReader(path).header();
    if (next.payload_xxh3 != merged.payload_xxh3) merged.payload_xxh3 = 0;
    if (next.expert_bytes != merged.expert_bytes) merged.expert_bytes = 0;
    merged.masked = merged.masked || next.masked;
    TraceHeader same = next;
    same.payload_xxh3 = merged.payload_xxh3;
    same.expert_bytes = merged.expert_bytes;
    same.masked = merged.masked;
    if (!(same == merged)) {
      throw Error(path, ": is of another model than ", traces.front(),
                  ", or recorded other layers or other quantities");
    }
  }
  return merged;
}

}  // namespace

int64_t merge_traces(const std::vector<std::string>& traces, const std::string& output) {
  for (const std::string& path : traces) {
    std::error_code ignored;
    if (std::filesystem::equivalent(path, output, ignored)) {
      throw Error(output, ": is one of the traces to merge, expected another path");
    }
  }
  TraceWriter writer(output, merged_header(traces));
  int64_t tokens = 0;
  for (const std::string& path : traces) {
    TraceReader reader(path);
    TraceBlockHeader place;
    std::vector<std::byte> stored;
    while (reader.next_stored(place, stored)) {
      place.first_token += tokens;
      writer.write_stored(place, stored);
    }
    if (reader.is_cut()) {
      throw Error(path, ": was cut; `k3c trace merge` takes whole traces only");
    }
    tokens += reader.tokens();
  }
  writer.finish(tokens);
  return tokens;
}

}  // namespace k3
