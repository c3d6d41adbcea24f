// Reads of one file, many in flight: what keeps a fast disk busy.
//
// One read at a time leaves an NVMe disk half idle, and reads through the page cache copy every
// byte and push out what is worth more. So reads are direct and go through io_uring. Where direct
// reads are refused (tmpfs, some network and overlay filesystems) they go through the page cache;
// where io_uring is refused (by a container's filter, or kernel.io_uring_disabled) they are done
// one by one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/file.h"

namespace k3 {

enum class ReadPath : uint8_t {
  kDirect,   // past the page cache, where the filesystem allows it
  kBuffered  // through the page cache
};

inline constexpr std::array<std::string_view, 2> kReadPathNames = {"direct", "buffered"};

class ReadQueue {
 public:
  struct Done {
    int64_t tag = 0;
    std::string fault;  // empty: all bytes are there; else one line that says what went wrong
  };

  // `file` must outlive it. At most `depth` reads are in flight.
  ReadQueue(const File& file, ReadPath wanted, int depth);
  ~ReadQueue();  // waits for what is in flight
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  bool is_direct() const { return direct_descriptor_ >= 0; }
  bool has_ring() const { return ring_ != nullptr; }
  int depth() const { return depth_; }
  bool is_full() const { return in_flight_ == depth_; }

  // Starts to read `length_bytes` from `offset_bytes`, a multiple of kExtentAlignment, to `dst`,
  // aligned likewise and with room up to the next multiple. Not when the queue is full. `tag`, 0 or
  // more, comes back with next().
  void start(int64_t tag, int64_t offset_bytes, int64_t length_bytes, std::byte* dst);

  // A read that has ended, in any order. Without one: nothing at once, or with `wait` after the
  // next end or wake().
  std::optional<Done> next(bool wait);

  // Makes a next() that waits return, now or when it is called. From any thread.
  void wake() const;

 private:
  struct Ring;
  struct Read {
    int64_t tag = 0;
    int64_t offset_bytes = 0;
    int64_t length_bytes = 0;
    std::byte* dst = nullptr;
  };
  bool direct_reads_work() const;
  Done finish(const Read& read, int64_t got_bytes) const;

  const File& file_;
  int depth_;
  int direct_descriptor_ = -1;
  int wake_descriptor_ = -1;
  std::unique_ptr<Ring> ring_;
  std::vector<Read> reads_;     // with the ring: by place in it
  std::vector<size_t> unused_;  // of reads_
  std::deque<Read> waiting_;    // without
  int in_flight_ = 0;
};

// "direct, io_uring", "buffered, one by one" and so on.
std::string describe_reads(const ReadQueue& queue);

}  // namespace k3
