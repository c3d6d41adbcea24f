#include "schema/trace_writer.h"

#include <array>
#include <utility>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/zstd.h"

namespace k3 {
namespace {

// Recording runs beside the model: the levels above win a few percent, on ids alone, and cost a
// multiple of the time.
constexpr int kLevel = 1;

}  // namespace

TraceWriter::TraceWriter(const std::string& path, TraceHeader header)
    : path_(path), header_(std::move(header)) {
  const std::vector<std::byte> bytes = encode_trace_header(header_);
  file_.open(path, std::ios::binary | std::ios::trunc);
  append(bytes);
}

void TraceWriter::write(const TraceBlock& block) {
  const std::vector<std::byte> raw = encode_trace_block(header_, block);
  K3_CHECK(std::ssize(raw) <= kLargestTraceBlockBytes);
  const std::vector<std::byte> stored = compress_zstd(raw, kLevel);
  write_stored({.first_token = block.first_token,
                .tokens = std::ssize(block.tokens),
                .first_layer = block.first_layer,
                .layers = block.layers,
                .raw_bytes = std::ssize(raw),
                .stored_bytes = std::ssize(stored),
                .xxh3 = xxh3(stored)},
               stored);
}

void TraceWriter::write_stored(const TraceBlockHeader& place, std::span<const std::byte> stored) {
  std::array<std::byte, kTraceBlockHeaderBytes> header{};
  encode_block_header(place, header);
  append(header);
  append(stored);
}

void TraceWriter::finish(int64_t tokens) {
  write_stored({.first_token = tokens}, {});
}

void TraceWriter::append(std::span<const std::byte> bytes) {
  file_.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  file_.flush();
  if (!file_) throw Error(path_, ": cannot write the routing trace");
}

}  // namespace k3
