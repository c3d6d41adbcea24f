// Arrays smaller than a huge page, side by side in huge pages: each in memory of its own would lie
// on pages of 4 KiB, and the cores that read one would look up an address every 4 KiB, which takes
// a third of the time that reading does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "schema/aligned_bytes.h"
#include "schema/layout.h"

namespace k3 {

class SmallArrays {
 public:
  // A copy of `bytes`, aligned to 64 bytes, that stays until clear().
  const std::byte* keep(std::span<const std::byte> bytes) {
    const int64_t size = std::ssize(bytes);
    if (chunks_.empty() || used_ + size > chunks_.back().size_bytes()) {
      chunks_.emplace_back(std::max(kChunkBytes, size));
      used_ = 0;
    }
    std::byte* copy = chunks_.back().data() + used_;
    if (size > 0) std::memcpy(copy, bytes.data(), bytes.size());
    used_ = align_up(used_ + size, kPlaneAlignment);
    size_bytes_ += size;
    return copy;
  }

  void clear() { *this = {}; }

  int64_t size_bytes() const { return size_bytes_; }  // of what is kept

 private:
  // What is not used of a chunk is not touched, and so takes no memory.
  static constexpr int64_t kChunkBytes = 16 * AlignedBytes::kHugePage;

  std::vector<AlignedBytes> chunks_;
  int64_t used_ = 0;  // of the last chunk
  int64_t size_bytes_ = 0;
};

}  // namespace k3
