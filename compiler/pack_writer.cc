#include "compiler/pack_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "compiler/encode_journal.h"
#include "schema/error.h"
#include "schema/file.h"
#include "schema/pack_frame.h"

namespace k3 {
namespace {

// Only a pack may be replaced: a slip of the hand must not cost a shard.
void check_replaceable(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) throw Error(path, ": is a folder, expected a file name");
  if (!S_ISREG(status.st_mode)) throw Error(path, ": is not a regular file, it stays as it is");
  const File file(path);
  if (file.size_bytes() == 0) return;
  std::array<std::byte, 8> got{};
  const auto want = encode_frame({});
  if (file.size_bytes() >= kFrameBytes) file.read_at(0, got);
  if (!std::equal(got.begin(), got.end(), want.begin())) {
    throw Error(path, ": exists and is not a pack, it stays as it is");
  }
}

int create_exclusively(const std::string& path) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
}

[[noreturn]] void fail_running(const std::string& path) {
  throw Error(path, ": another program is writing it");
}

// Opens and locks what is there; -1 when nothing is. The lock tells a running program from a killed
// one: the system drops it with the process.
int open_left_over(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0 && errno == ENOENT) return -1;
  if (descriptor < 0) throw Error(path, ": cannot open for writing: ", std::strerror(errno));
  struct stat opened {};
  struct stat named {};
  // If it has lost its name by now, the other program has just finished its pack.
  const bool free = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 &&
                    ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino && S_ISREG(opened.st_mode);
  if (free) return descriptor;
  ::close(descriptor);
  fail_running(path);
}

int create_locked(const std::string& path) {
  const int descriptor = create_exclusively(path);
  if (descriptor < 0 && errno == EEXIST) fail_running(path);
  if (descriptor < 0) throw Error(path, ": cannot create: ", std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  ::close(descriptor);
  fail_running(path);
}

void sync_folder_of(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a folder that one may write to but not read
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

PackWriter::PackWriter(const std::string& path, Resume resume)
    : path_(path),
      unfinished_path_(path + ".unfinished"),
      journal_path_(unfinished_path_ + ".journal"),
      stays_(resume == Resume::kYes) {
  check_replaceable(path);
  int descriptor = open_left_over(unfinished_path_);
  continues_ = descriptor >= 0 && stays_;
  if (descriptor >= 0 && !stays_) {
    const OutputFile left_over(descriptor, unfinished_path_);
    if (EncodeJournal::holds_records(journal_path_)) {
      throw Error(unfinished_path_,
                  ": is the work of a compile that was killed; go on with it by --resume, or "
                  "remove it to start over");
    }
    ::unlink(unfinished_path_.c_str());
  }
  if (!continues_) descriptor = create_locked(unfinished_path_);
  file_ = std::make_unique<OutputFile>(descriptor, unfinished_path_);
  try {
    signal_ending_ = stays_
                         ? std::make_unique<SignalEnding>(
                               std::vector<std::string>{},
                               "k3c: interrupted; --resume goes on with " + unfinished_path_ + "\n")
                         : std::make_unique<SignalEnding>(
                               std::vector<std::string>{unfinished_path_, journal_path_});
  } catch (...) {
    remove_unfinished();
    throw;
  }
}

void PackWriter::reserve(int64_t file_bytes) const {
  if (::fallocate(file_->descriptor(), 0, 0, file_bytes) == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS) {
    throw Error(unfinished_path_, ": cannot reserve ", file_bytes,
                " bytes: ", std::strerror(errno));
  }
  if (::ftruncate(file_->descriptor(), file_bytes) != 0) {
    throw Error(unfinished_path_, ": cannot have ", file_bytes, " bytes: ", std::strerror(errno));
  }
}

PackWriter::~PackWriter() {
  if (!finished_) remove_unfinished();
}

void PackWriter::remove_unfinished() const {
  if (stays_) {
    try {
      if (EncodeJournal::holds_records(journal_path_)) return;
    } catch (const Error&) {
      return;  // a journal that cannot be read now may be readable later
    }
  }
  ::unlink(unfinished_path_.c_str());
  ::unlink(journal_path_.c_str());
}

void PackWriter::write_at(int64_t offset_bytes, std::span<const std::byte> bytes) const {
  file_->write_at(offset_bytes, bytes);
}

void PackWriter::finish(int64_t index_offset_bytes, std::span<const std::byte> index,
                        uint64_t features) {
  PackFrame frame;
  frame.index = {index_offset_bytes, static_cast<int64_t>(index.size()), xxh3(index)};
  frame.file_bytes = frame.index.end_bytes();
  frame.features = features;
  write_at(index_offset_bytes, index);
  write_at(0, encode_frame(frame));
  if (::ftruncate(file_->descriptor(), frame.file_bytes) != 0) {
    throw Error(unfinished_path_, ": cannot end at ", frame.file_bytes, ": ", std::strerror(errno));
  }
  file_->sync();
  if (::rename(unfinished_path_.c_str(), path_.c_str()) != 0) {
    throw Error(path_, ": cannot give the finished pack its name: ", std::strerror(errno));
  }
  finished_ = true;
  signal_ending_.reset();
  ::unlink(journal_path_.c_str());
  sync_folder_of(path_);
}

void ExtentStream::write(std::span<const std::byte> bytes) {
  K3_CHECK(static_cast<int64_t>(bytes.size()) <= end_bytes_ - next_bytes_);
  writer_.write_at(next_bytes_, bytes);
  hash_.update(bytes);
  next_bytes_ += static_cast<int64_t>(bytes.size());
}

uint64_t ExtentStream::finish() const {
  K3_CHECK(next_bytes_ == end_bytes_);
  return hash_.digest();
}

}  // namespace k3
