#include "runtime/row_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr int64_t kFloatBytes = 4;

int open_rows(const std::string& path, int64_t bytes, RowStore::Keeping keeping) {
  const bool creates = keeping != RowStore::Keeping::kOpen;
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CLOEXEC | (creates ? O_CREAT | O_TRUNC : 0), 0666);
  if (descriptor < 0) throw Error(path, ": cannot open for writing: ", std::strerror(errno));
  if (creates && ::ftruncate(descriptor, bytes) != 0) {
    const int reason = errno;
    ::close(descriptor);
    throw Error(path, ": cannot make room for ", bytes, " bytes: ", std::strerror(reason));
  }
  return descriptor;
}

}  // namespace

RowStore::RowStore(int64_t rows, int64_t width)
    : rows_(rows), width_(width), memory_(static_cast<size_t>(rows * width)) {}

RowStore::RowStore(const std::string& path, int64_t rows, int64_t width, Keeping keeping)
    : rows_(rows), width_(width) {
  const int64_t bytes = rows * width * kFloatBytes;
  output_ = std::make_unique<OutputFile>(open_rows(path, bytes, keeping), path);
  if (keeping == Keeping::kTemporary) temporary_path_ = path;
  input_ = std::make_unique<File>(path);
  if (input_->size_bytes() != bytes) {
    throw Error(path, ": has ", input_->size_bytes(), " bytes, expected ", bytes,
                "; remove its folder to start again");
  }
}

RowStore::~RowStore() {
  if (output_ != nullptr && !temporary_path_.empty()) std::remove(temporary_path_.c_str());
}

void RowStore::write(int64_t first, int64_t count, const float* x) {
  K3_CHECK(first >= 0 && first + count <= rows_);
  if (output_ == nullptr) {
    std::copy_n(x, count * width_, memory_.data() + first * width_);
    return;
  }
  output_->write_at(first * width_ * kFloatBytes,
                    std::as_bytes(std::span(x, static_cast<size_t>(count * width_))));
}

void RowStore::read(int64_t first, int64_t count, float* x) const {
  K3_CHECK(first >= 0 && first + count <= rows_);
  if (input_ == nullptr) {
    std::copy_n(memory_.data() + first * width_, count * width_, x);
    return;
  }
  input_->read_at(first * width_ * kFloatBytes,
                  std::as_writable_bytes(std::span(x, static_cast<size_t>(count * width_))));
}

void RowStore::sync() const {
  if (output_ != nullptr) output_->sync();
}

}  // namespace k3
