// Memory for extents and for what is read from files: 64-byte aligned, uninitialised, owned.
//
// A vector's memory starts 16 bytes behind a page, and the kernel copies from a page to there at
// little more than half the speed that it has to a multiple of 64. Large memory asks for huge
// pages, where the system gives them on request: a core then reads it twice as fast, because it
// prefetches across 4 KiB and seldom has to look up an address.
#pragma once

#include <sys/mman.h>

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
  static constexpr int64_t kHugePage = int64_t{2} << 20;

  AlignedBytes() = default;
  explicit AlignedBytes(int64_t bytes) : size_bytes_(bytes) {
    const int64_t alignment = bytes >= kHugePage ? kHugePage : kPlaneAlignment;
    const int64_t padded = align_up(bytes > 0 ? bytes : 1, kPlaneAlignment);
    void* memory = nullptr;
    if (::posix_memalign(&memory, static_cast<size_t>(alignment), static_cast<size_t>(padded))) {
      throw std::bad_alloc();
    }
    data_.reset(static_cast<std::byte*>(memory));
    // A wish, so failing is no error. What is left over at the end takes no huge page.
    const int64_t whole = bytes / kHugePage * kHugePage;
    if (whole > 0) ::madvise(memory, static_cast<size_t>(whole), MADV_HUGEPAGE);
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> span() { return {data(), static_cast<size_t>(size_bytes_)}; }

  // Room for `bytes` bytes, for buffers that serve one thing after another. What was there is lost.
  std::span<std::byte> room_for(int64_t bytes) {
    if (bytes > size_bytes_) *this = AlignedBytes(bytes);
    return span().first(static_cast<size_t>(bytes));
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_bytes_ = 0;
};

}  // namespace k3
