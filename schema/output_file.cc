#include "schema/output_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "schema/error.h"

namespace k3 {

OutputFile::OutputFile(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)) {}

OutputFile::~OutputFile() {
  ::close(descriptor_);
}

void OutputFile::write_at(int64_t offset_bytes, std::span<const std::byte> bytes) const {
  constexpr size_t kLargestWrite = size_t{1} << 30;  // Linux caps one write just below 2 GiB
  while (!bytes.empty()) {
    const ssize_t put =
        ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kLargestWrite), offset_bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      throw Error(path_, ": cannot write ", bytes.size(), " bytes at ", offset_bytes, ": ",
                  std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset_bytes += put;
  }
}

void OutputFile::sync() const {
  if (::fsync(descriptor_) != 0) {
    throw Error(path_, ": cannot bring to disk: ", std::strerror(errno));
  }
}

void check_writable(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (::access(parent.empty() ? "." : parent.c_str(), W_OK) == 0) return;
  throw Error(path, ": cannot write: ", std::strerror(errno));
}

}  // namespace k3
