// Writes a pack so that OUT is either the whole new pack or what it was before.
//
// Bytes go to a neighbour, OUT.unfinished, at offsets that the plan fixed; index and frame come
// last; then fsync, rename, fsync of the folder. A neighbour, not /tmp: a rename works only inside
// one file system. Beside it stands OUT.unfinished.journal (encode_journal.h), with which a killed
// compile can be continued. So a left-over may be hours of work: it is replaced only when its
// journal claims nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compiler/signal_ending.h"
#include "schema/extent.h"
#include "schema/hash.h"
#include "schema/output_file.h"

namespace k3 {

// Whether what a killed program left behind is taken up; then the neighbour also stays when this
// program fails or is interrupted.
enum class Resume : uint8_t { kNo, kYes };

class PackWriter {
 public:
  // Creates the neighbour, or opens the one that is there. Throws Error for one that a running
  // program is writing, for one that --resume could continue when `resume` is kNo, and for a path
  // that names a folder or a file that is not a pack.
  explicit PackWriter(const std::string& path, Resume resume = Resume::kNo);
  // Removes the neighbour and its journal unless finish() returned, or they are to stay and have
  // something to go on with.
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  const std::string& unfinished_path() const { return unfinished_path_; }
  const std::string& journal_path() const { return journal_path_; }
  // The neighbour was there: none of its bytes may be taken for written unless a hash proves it.
  bool continues() const { return continues_; }

  // Reserves `file_bytes` on disk, where the file system can: the disk proves full now and not
  // hours later. Not before the journal has proved that a left-over is of this plan. Throws Error.
  void reserve(int64_t file_bytes) const;

  // Thread-safe. Throws Error.
  void write_at(int64_t offset_bytes, std::span<const std::byte> bytes) const;

  // Writes index and frame, which states `features`, gives the file its name and removes the
  // journal. Throws Error; then OUT is as before.
  void finish(int64_t index_offset_bytes, std::span<const std::byte> index, uint64_t features = 0);

 private:
  void remove_unfinished() const;

  std::string path_;
  std::string unfinished_path_;
  std::string journal_path_;
  bool stays_ = false;
  bool continues_ = false;
  std::unique_ptr<OutputFile> file_;
  std::unique_ptr<SignalEnding> signal_ending_;
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
