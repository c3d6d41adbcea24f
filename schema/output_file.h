// Writing at offsets, with the errors a full disk and a lost device make spelled out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace k3 {

// An owned descriptor open for writing.
class OutputFile {
 public:
  // Takes over `descriptor`; `path` is for messages.
  OutputFile(int descriptor, std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

  // Writes all of `bytes` at `offset_bytes`, at any size. Thread-safe. Throws Error.
  void write_at(int64_t offset_bytes, std::span<const std::byte> bytes) const;
  // Returns when everything written is on the device. Throws Error.
  void sync() const;

 private:
  int descriptor_;
  std::string path_;
};

// Throws Error when the folder of `path` takes no new file: for programs that compute long before
// they write.
void check_writable(const std::string& path);

}  // namespace k3
