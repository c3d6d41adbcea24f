// Writes a pack so that OUT is either the whole new pack or what it was before.
//
// Bytes go to a neighbour, OUT.unfinished, at offsets that the plan fixed; index and frame come
// last; then fsync, rename, fsync of the folder. A neighbour, not /tmp: a rename works only inside
// one file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compiler/output_file.h"
#include "compiler/remove_on_signal.h"
#include "schema/extent.h"
#include "schema/hash.h"

namespace k3 {

class PackWriter {
 public:
  // Creates the neighbour and reserves `file_bytes` on disk. A neighbour that a killed program left
  // behind is replaced; one that a running program is writing is an Error, as are a path that
  // names a folder or a file that is not a pack, and a full disk.
  PackWriter(const std::string& path, int64_t file_bytes);
  // Removes the neighbour unless finish() returned.
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // Thread-safe. Throws Error.
  void write_at(int64_t offset_bytes, std::span<const std::byte> bytes) const;

  // Writes index and frame, and gives the file its name. Throws Error; then OUT is as before.
  void finish(int64_t index_offset_bytes, std::span<const std::byte> index);

 private:
  std::string path_;
  std::string unfinished_path_;
  std::unique_ptr<OutputFile> file_;
  std::unique_ptr<RemoveOnSignal> remove_on_signal_;
  bool finished_ = false;
};

// The bytes of one extent in order: placed, hashed, counted.
class ExtentStream {
 public:
  // `extent` has its offset and length; `writer` must outlive the stream.
  ExtentStream(const PackWriter& writer, const Extent& extent)
      : writer_(writer), next_bytes_(extent.offset_bytes), end_bytes_(extent.end_bytes()) {}

  void write(std::span<const std::byte> bytes);
  // The extent's hash; all its bytes must have been written.
  uint64_t finish() const;

 private:
  const PackWriter& writer_;
  int64_t next_bytes_;
  int64_t end_bytes_;
  Xxh3Stream hash_;
};

}  // namespace k3
