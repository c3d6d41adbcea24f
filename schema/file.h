// Read-only files by explicit reads at offsets.
//
// We do not map files. A mapped file that somebody truncates or rewrites kills the process with
// SIGBUS at an arbitrary load instruction; a read that comes back short is an error with a name and
// a number. Reads also state their size, so peak memory is what the caller allocated, and
// unified-memory machines do not pay for page faults (ten times slower loading was reported there).
// The cost is one copy, at memory speed, of bytes that come from a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schema/hash.h"

namespace k3 {

class File {
 public:
  // Opens `path` for reading. Throws Error if it cannot be opened or is not a regular file.
  explicit File(const std::string& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  // at the time of opening
  int descriptor() const { return descriptor_; }      // for reads of other kinds; stays the file's

  // Fills `dst` from `offset_bytes` on, at any size (also beyond 2 GiB). Safe to call from several
  // threads. Throws Error when the file does not reach that far, or has become shorter since it was
  // opened.
  void read_at(int64_t offset_bytes, std::span<std::byte> dst) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

// Fills `dst` from `offset_bytes` on and brings `hash` up to date, in pieces that stay in a core's
// cache between the two. Throws Error.
void read_hashed(const File& file, int64_t offset_bytes, std::span<std::byte> dst,
                 Xxh3Stream& hash);

// The whole of a small file. Throws Error when it is larger than `limit_bytes`.
std::vector<std::byte> read_whole_file(const std::string& path, int64_t limit_bytes);

}  // namespace k3
