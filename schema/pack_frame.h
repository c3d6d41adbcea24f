// The fixed 64 bytes at the start of every pack and of every calibration. They find the index and
// prove that nothing moved.
//
//   offset  bytes
//        0      8  magic, of a pack 89 4B 33 50 41 43 4B 0A: "\x89K3PACK\n", not text, and newline
//                  translation breaks it
//        8      4  format version
//       12      4  bytes of this frame, 64
//       16      8  offset of the index
//       24      8  length of the index
//       32      8  XXH3-64 of the index
//       40      8  length of the file: the index is last
//       48      8  features that a reader must know, one bit each
//       56      8  XXH3-64 of the 56 bytes above
// All little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "schema/extent.h"

namespace k3 {

inline constexpr uint32_t kPackVersion = 1;
inline constexpr int64_t kFrameBytes = 64;

// A feature is something that a reader must not overlook, unlike a new field, which it may: a
// reader refuses a frame with a bit that it does not know.
inline constexpr uint64_t kFeatureRotation = 1;  // the config has a rotation

struct PackFrame {
  Extent index;
  int64_t file_bytes = 0;
  uint64_t features = 0;
};

// What differs between the files that start with such a frame.
struct FrameKind {
  std::array<uint8_t, 8> magic;
  uint32_t version;
  const char* noun;  // in messages
  uint64_t known_features = 0;
};
inline constexpr FrameKind kPackFrame = {
    {0x89, 'K', '3', 'P', 'A', 'C', 'K', '\n'}, kPackVersion, "pack", kFeatureRotation};

std::array<std::byte, kFrameBytes> encode_frame(const PackFrame& frame,
                                                const FrameKind& kind = kPackFrame);

// What to do with bytes after the end that the frame states. An attach that was interrupted leaves
// such a tail behind a pack that is whole; only the next attach, which drops it, may accept it.
enum class Tail { kRefuse, kIgnore };

// Checks magic, version, hash, every fixed field, that all features are known, and that the index
// ends the file. `path` is for messages, `file_bytes` is the true length of the file. Throws Error.
PackFrame decode_frame(std::span<const std::byte> bytes, const std::string& path,
                       int64_t file_bytes, Tail tail = Tail::kRefuse,
                       const FrameKind& kind = kPackFrame);

}  // namespace k3
