// Memory for extents: 64-byte aligned, uninitialised, owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "schema/layout.h"

namespace k3 {

class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(int64_t bytes) : size_bytes_(bytes) {
    const int64_t padded = align_up(bytes > 0 ? bytes : 1, kPlaneAlignment);
    data_.reset(static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(kPlaneAlignment), static_cast<size_t>(padded))));
    if (data_ == nullptr) throw std::bad_alloc();
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> span() { return {data(), static_cast<size_t>(size_bytes_)}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_bytes_ = 0;
};

}  // namespace k3
