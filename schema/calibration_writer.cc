#include "schema/calibration_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "schema/calibration_index.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/layout.h"

namespace k3 {
namespace {

int open_unfinished(const std::string& path, int64_t end_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) throw Error(path, ": cannot open for writing: ", std::strerror(errno));
  const off_t have = ::lseek(descriptor, 0, SEEK_END);
  const bool fits = have >= end_bytes || end_bytes == kExtentAlignment;
  if (!fits || ::ftruncate(descriptor, end_bytes) != 0) {
    const int reason = errno;
    ::close(descriptor);
    if (!fits) throw Error(path, ": has ", have, " bytes, expected at least ", end_bytes);
    throw Error(path, ": cannot cut off at ", end_bytes, ": ", std::strerror(reason));
  }
  return descriptor;
}

}  // namespace

CalibrationWriter::CalibrationWriter(const std::string& path, int64_t end_bytes)
    : file_(open_unfinished(path, end_bytes), path), end_bytes_(end_bytes) {}

Extent CalibrationWriter::add(std::span<const std::byte> stored) {
  const Extent extent{end_bytes_, std::ssize(stored), xxh3(stored)};
  file_.write_at(extent.offset_bytes, stored);
  end_bytes_ = align_up(extent.end_bytes(), kExtentAlignment);
  return extent;
}

void CalibrationWriter::sync() const {
  if (::ftruncate(file_.descriptor(), end_bytes_) != 0) {
    throw Error(file_.path(), ": cannot make ", end_bytes_, " bytes long: ", std::strerror(errno));
  }
  file_.sync();
}

void CalibrationWriter::finish(const CalibrationIndex& index, const std::string& final_path) {
  const std::string text = encode_calibration_index(index);
  const auto bytes = std::as_bytes(std::span(text));
  check_calibration_index(final_path, index, end_bytes_);
  file_.write_at(end_bytes_, bytes);
  const PackFrame frame{.index = {end_bytes_, std::ssize(bytes), xxh3(bytes)},
                        .file_bytes = end_bytes_ + std::ssize(bytes)};
  file_.write_at(0, encode_frame(frame, kCalibrationFrame));
  file_.sync();
  if (std::rename(file_.path().c_str(), final_path.c_str()) != 0) {
    throw Error(final_path, ": cannot rename ", file_.path(), " to it: ", std::strerror(errno));
  }
}

}  // namespace k3
