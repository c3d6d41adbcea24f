#include "schema/pack_frame.h"

#include <algorithm>
#include <string_view>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr size_t kHashedBytes = 56;
constexpr uint64_t kLargestIndex = (uint64_t{1} << 31) - 1;  // FlatBuffers offsets are 32-bit

}  // namespace

std::array<std::byte, kFrameBytes> encode_frame(const PackFrame& frame, const FrameKind& kind) {
  std::array<std::byte, kFrameBytes> bytes{};
  std::transform(kind.magic.begin(), kind.magic.end(), bytes.begin(),
                 [](uint8_t value) { return std::byte{value}; });
  store_little_endian(kind.version, &bytes[8]);
  store_little_endian(static_cast<uint32_t>(kFrameBytes), &bytes[12]);
  store_little_endian(static_cast<uint64_t>(frame.index.offset_bytes), &bytes[16]);
  store_little_endian(static_cast<uint64_t>(frame.index.length_bytes), &bytes[24]);
  store_little_endian(frame.index.xxh3, &bytes[32]);
  store_little_endian(static_cast<uint64_t>(frame.file_bytes), &bytes[40]);
  store_little_endian(frame.features, &bytes[48]);
  store_little_endian(xxh3(std::span(bytes).first(kHashedBytes)), &bytes[kHashedBytes]);
  return bytes;
}

PackFrame decode_frame(std::span<const std::byte> bytes, const std::string& path,
                       int64_t file_bytes, Tail tail, const FrameKind& kind) {
  const auto true_bytes = static_cast<uint64_t>(file_bytes);
  if (bytes.size() < static_cast<size_t>(kFrameBytes)) {
    throw Error(path, ": not a ", kind.noun, ": has ", bytes.size(), " bytes, a frame alone has ",
                kFrameBytes);
  }
  const bool magic_matches =
      std::equal(kind.magic.begin(), kind.magic.end(), bytes.begin(),
                 [](uint8_t want, std::byte got) { return std::byte{want} == got; });
  if (!magic_matches) {
    const std::string_view name(reinterpret_cast<const char*>(&kind.magic[1]), 6);
    throw Error(path, ": not a ", kind.noun, ": does not start with \\x89", name, "\\n");
  }

  // The version comes before the hash: a later version may hash other bytes.
  const auto version = load_little_endian<uint32_t>(&bytes[8]);
  if (version != kind.version) {
    throw Error(path, ": is version ", version, ", this program reads ", kind.version);
  }
  const uint64_t hash = xxh3(bytes.first(kHashedBytes));
  if (load_little_endian<uint64_t>(&bytes[kHashedBytes]) != hash) {
    throw Error(path, ": frame is damaged: its hash does not match its bytes");
  }
  const auto frame_bytes = load_little_endian<uint32_t>(&bytes[12]);
  if (frame_bytes != kFrameBytes) {
    throw Error(path, ": frame has ", frame_bytes, " bytes, expected ", kFrameBytes);
  }
  const auto features = load_little_endian<uint64_t>(&bytes[48]);
  if ((features & ~kind.known_features) != 0) {
    throw Error(path, ": needs features ", features, " of its reader, this program knows ",
                kind.known_features);
  }

  const auto offset = load_little_endian<uint64_t>(&bytes[16]);
  const auto length = load_little_endian<uint64_t>(&bytes[24]);
  const auto stated_bytes = load_little_endian<uint64_t>(&bytes[40]);
  if (true_bytes < stated_bytes) {
    throw Error(path, ": is cut off: has ", true_bytes, " bytes, its frame says ", stated_bytes);
  }
  if (true_bytes > stated_bytes && tail == Tail::kRefuse) {
    throw Error(path, ": has ", true_bytes - stated_bytes, " bytes after its end at ", stated_bytes,
                "; if an attach was interrupted, run `k3c attach` again");
  }
  constexpr auto kAlignment = static_cast<uint64_t>(kExtentAlignment);
  if (offset < kAlignment || offset % kAlignment != 0 || length == 0 || length > kLargestIndex ||
      length > stated_bytes || offset != stated_bytes - length) {
    throw Error(path, ": index is at ", offset, " + ", length,
                ", expected a multiple of 4096 and the end of the file at ", stated_bytes);
  }
  PackFrame frame;
  frame.index.offset_bytes = static_cast<int64_t>(offset);
  frame.index.length_bytes = static_cast<int64_t>(length);
  frame.index.xxh3 = load_little_endian<uint64_t>(&bytes[32]);
  frame.file_bytes = static_cast<int64_t>(stated_bytes);
  frame.features = features;
  return frame;
}

}  // namespace k3
