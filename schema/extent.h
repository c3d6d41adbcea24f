// A byte range of a pack and its hash.
#pragma once

#include <cstdint>

namespace k3 {

struct Extent {
  int64_t offset_bytes = 0;
  int64_t length_bytes = 0;
  uint64_t xxh3 = 0;
  int64_t end_bytes() const { return offset_bytes + length_bytes; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

inline constexpr int64_t kExtentAlignment = 4096;  // bytes; one page, and what direct I/O needs

}  // namespace k3
