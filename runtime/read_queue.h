// Reads of one file, many in flight: what keeps a fast disk busy.
//
// One read at a time leaves an NVMe disk half idle, and reads through the page cache copy every
// byte and push out what is worth more. So reads are direct and go through io_uring. Where direct
// reads are refused (some network and overlay filesystems) they go through the page cache; where
// io_uring is refused (by a container's filter, or kernel.io_uring_disabled) threads do them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/read_threads.h"
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

  // `file` must outlive it. At most `depth` reads are in flight. `allow_ring` is for tests.
  ReadQueue(const File& file, ReadPath wanted, int depth, bool allow_ring = true);
  ~ReadQueue();  // waits for what is in flight
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  bool is_direct() const { return direct_descriptor_ >= 0; }
  bool has_ring() const { return ring_ != nullptr; }
  int depth() const { return depth_; }
  int in_flight() const { return in_flight_; }

  // Takes a read of `length_bytes` from `offset_bytes`, a multiple of kExtentAlignment, to `dst`,
  // aligned likewise and with room up to the next multiple. Not when `depth` are in flight. `tag`
  // comes back with next().
  void start(int64_t tag, int64_t offset_bytes, int64_t length_bytes, std::byte* dst);

  // Tells the system of what has been taken; next() does so too.
  void submit();

  // A read that has ended, in any order; nothing when none has. With `wait`, when some are in
  // flight, always one.
  std::optional<Done> next(bool wait);

 private:
  struct Ring;
  bool direct_reads_work() const;
  Done finish(const Read& read, int64_t got_bytes) const;

  const File& file_;
  int depth_;
  int direct_descriptor_ = -1;
  int in_flight_ = 0;
  std::vector<Read> reads_;     // by place, the number under which the system knows them
  std::vector<size_t> unused_;  // places
  std::unique_ptr<Ring> ring_;  // one of the two
  std::unique_ptr<ReadThreads> threads_;
};

// "direct, io_uring", "buffered, threads" and so on.
std::string describe_reads(const ReadQueue& queue);

}  // namespace k3
