// From the bytes of an index to PackIndex: structure, enumerators and integer ranges. What the
// values mean together is pack_check.h's business.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "schema/pack_index.h"

namespace k3 {

struct DecodedIndex {
  PackIndex index;
  std::span<const std::byte> content;  // the nested content buffer, inside the bytes given
};

// `bytes` starts on an 8-byte boundary and has fewer than 2^31 bytes; both are the caller's duty.
// Every offset in it is checked before it is followed. `path` is for messages. Throws Error.
DecodedIndex decode_index(std::span<const std::byte> bytes, const std::string& path);

}  // namespace k3
