// Writes a .k3trace as it grows: what was flushed can be read, whenever the writer is killed.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "schema/routing_trace.h"

namespace k3 {

class TraceWriter {
 public:
  // Creates or replaces `path`. Throws Error when it cannot be written.
  TraceWriter(const std::string& path, TraceHeader header);

  const TraceHeader& header() const { return header_; }

  // Compresses and appends one block. Throws Error when the disk refuses it.
  void write(const TraceBlock& block);

  // Appends a block as another file holds it, for merging; `place` says where it belongs here.
  void write_stored(const TraceBlockHeader& place, std::span<const std::byte> stored);

  // Marks the trace as complete, `tokens` long. Without it a reader says that it was cut.
  void finish(int64_t tokens);

 private:
  void append(std::span<const std::byte> bytes);

  std::string path_;
  TraceHeader header_;
  std::ofstream file_;
};

}  // namespace k3
