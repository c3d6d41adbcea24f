// The header of one safetensors file, read strictly: every byte of the file belongs to exactly one
// tensor, or the file is refused.
//
// Limits, all documented here and nowhere else: a header of at most 1 GiB (the public library stops
// at 100 MB, and 1.3 million tensors need 126 MB), at most four dimensions (Shape::kMaxRank; K3's
// largest rank), the element types of schema/dtype.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/dtype.h"
#include "schema/file.h"
#include "schema/shape.h"

namespace k3 {

inline constexpr int64_t kSafetensorsPrefixBytes = 8;  // the length that opens the file
inline constexpr int64_t kLargestSafetensorsHeader = int64_t{1} << 30;

// The tensors of one file in file order. About 24 bytes a tensor and its name.
class SafetensorsHeader {
 public:
  int64_t tensors() const { return static_cast<int64_t>(entries_.size()); }
  std::string_view name(int64_t i) const {
    const Entry& entry = entries_[static_cast<size_t>(i)];
    return std::string_view(names_).substr(entry.name_begin, entry.name_bytes);
  }
  Dtype dtype(int64_t i) const { return entries_[static_cast<size_t>(i)].dtype; }
  const Shape& shape(int64_t i) const {
    return shapes_[entries_[static_cast<size_t>(i)].shape_number];
  }
  // From the start of the file.
  int64_t offset_bytes(int64_t i) const { return entries_[static_cast<size_t>(i)].offset_bytes; }
  int64_t length_bytes(int64_t i) const { return *shape(i).elements() * dtype_bytes(dtype(i)); }

  int64_t data_offset_bytes() const { return data_offset_bytes_; }  // where the header ends
  // `__metadata__`, in the file's order.
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }

 private:
  friend class SafetensorsParser;
  struct Entry {
    int64_t offset_bytes = 0;
    uint32_t name_begin = 0;
    uint32_t name_bytes = 0;
    uint32_t shape_number = 0;  // K3 has half a million tensors and some forty shapes
    Dtype dtype = Dtype::kU8;
  };

  std::string names_;
  std::vector<Shape> shapes_;
  std::vector<Entry> entries_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  int64_t data_offset_bytes_ = 0;
};

// The length of the header of a file of `file_bytes` bytes whose first eight are `prefix`. Throws
// Error when the file cannot hold such a header, before anything of that size is allocated.
int64_t safetensors_header_bytes(const std::string& path,
                                 std::span<const std::byte, kSafetensorsPrefixBytes> prefix,
                                 int64_t file_bytes);

// Parses and checks `json`, the header without its length. `path` is for messages; nothing is read
// from it, so the bytes may come from anywhere. Throws Error at the first rule that is broken.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view json,
                                           int64_t file_bytes);

// The two above on a local file.
SafetensorsHeader read_safetensors_header(const File& file);

}  // namespace k3
