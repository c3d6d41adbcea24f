// A row of floats for every token of a capture: in memory, or in a file when memory is short or the
// rows must outlive the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schema/file.h"
#include "schema/output_file.h"

namespace k3 {

class RowStore {
 public:
  enum class Keeping : uint8_t {
    kCreate,     // a new file, which stays
    kOpen,       // the file that is there, which stays
    kTemporary,  // a new file, removed with the store
  };

  // In memory.
  RowStore(int64_t rows, int64_t width);
  // In the file `path`. Throws Error; with kOpen also when the file has another size.
  RowStore(const std::string& path, int64_t rows, int64_t width, Keeping keeping);
  ~RowStore();
  RowStore(RowStore&&) noexcept = default;
  RowStore& operator=(RowStore&&) = delete;

  int64_t width() const { return width_; }

  // Rows first to first + count, x [count, width].
  void write(int64_t first, int64_t count, const float* x);
  void read(int64_t first, int64_t count, float* x) const;
  // Returns when a file's rows are on the device.
  void sync() const;

 private:
  int64_t rows_;
  int64_t width_;
  std::vector<float> memory_;
  std::string temporary_path_;
  std::unique_ptr<OutputFile> output_;
  std::unique_ptr<File> input_;
};

}  // namespace k3
