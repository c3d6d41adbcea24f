#include "schema/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "schema/error.h"

namespace k3 {

File::File(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw Error(path, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  const bool readable = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!readable) {
    ::close(descriptor_);
    throw Error(path, ": not a regular file");
  }
  size_bytes_ = status.st_size;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

void File::read_at(int64_t offset_bytes, std::span<std::byte> dst) const {
  const auto length_bytes = static_cast<int64_t>(dst.size());
  if (offset_bytes < 0 || length_bytes > size_bytes_ || offset_bytes > size_bytes_ - length_bytes) {
    throw Error(path_, ": bytes ", offset_bytes, " + ", length_bytes, " are wanted, the file has ",
                size_bytes_);
  }
  // Linux caps one read at 0x7ffff000 bytes and may return short below that.
  constexpr size_t kLargestRead = size_t{1} << 30;
  while (!dst.empty()) {
    const ssize_t got =
        ::pread(descriptor_, dst.data(), std::min(dst.size(), kLargestRead), offset_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(path_, ": cannot read: ", std::strerror(errno));
    if (got == 0) throw Error(path_, ": ends at byte ", offset_bytes, ", it had ", size_bytes_);
    dst = dst.subspan(static_cast<size_t>(got));
    offset_bytes += got;
  }
}

void read_hashed(const File& file, int64_t offset_bytes, std::span<std::byte> dst,
                 Xxh3Stream& hash) {
  constexpr size_t kPieceBytes = size_t{256} << 10;
  while (!dst.empty()) {
    const auto piece = dst.first(std::min(kPieceBytes, dst.size()));
    file.read_at(offset_bytes, piece);
    hash.update(piece);
    dst = dst.subspan(piece.size());
    offset_bytes += static_cast<int64_t>(piece.size());
  }
}

std::vector<std::byte> read_whole_file(const std::string& path, int64_t limit_bytes) {
  const File file(path);
  if (file.size_bytes() > limit_bytes) {
    throw Error(path, ": has ", file.size_bytes(), " bytes, at most ", limit_bytes,
                " are read of such a file");
  }
  std::vector<std::byte> bytes(static_cast<size_t>(file.size_bytes()));
  file.read_at(0, bytes);
  return bytes;
}

}  // namespace k3
