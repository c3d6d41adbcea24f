// Files of test vectors, for programs that have nothing but a C++ compiler; the format is described
// in tests/golden/kernels/README.md.
//
// An array on disk is a 64-byte header and its bytes, padded to 64. So a file can be mapped and its
// arrays used where they lie, on the alignment that extents have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/aligned_bytes.h"
#include "schema/layout.h"

namespace k3 {

inline constexpr int64_t kVectorAlignment = 64;

struct VectorArray {
  char name[32] = {};  // zero-padded
  char type[8] = {};   // case, f32, f64, i16, i32, i64, u8 or u64
  AlignedBytes bytes;
};

template <class T>
inline constexpr std::string_view kVectorType = "";
template <>
inline constexpr std::string_view kVectorType<float> = "f32";
template <>
inline constexpr std::string_view kVectorType<double> = "f64";
template <>
inline constexpr std::string_view kVectorType<int16_t> = "i16";
template <>
inline constexpr std::string_view kVectorType<int32_t> = "i32";
template <>
inline constexpr std::string_view kVectorType<int64_t> = "i64";
template <>
inline constexpr std::string_view kVectorType<uint8_t> = "u8";
template <>
inline constexpr std::string_view kVectorType<uint64_t> = "u64";

// One call of one operation: its sizes, inputs and the outputs that the contract gives.
class VectorCase {
 public:
  VectorCase(std::string operation, std::vector<int64_t> sizes)
      : operation_(std::move(operation)), sizes_(std::move(sizes)) {}

  const std::string& operation() const { return operation_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t size(size_t i) const { return sizes_.at(i); }
  const std::vector<VectorArray>& arrays() const { return arrays_; }

  template <class T>
  T* add(std::string_view name, int64_t count) {
    VectorArray array;
    name.copy(array.name, sizeof array.name - 1);
    kVectorType<T>.copy(array.type, sizeof array.type - 1);
    array.bytes = AlignedBytes(count * static_cast<int64_t>(sizeof(T)));
    std::memset(array.bytes.data(), 0, array.bytes.span().size());
    arrays_.push_back(std::move(array));
    return reinterpret_cast<T*>(arrays_.back().bytes.data());
  }
  template <class T>
  T* add(std::string_view name, const std::vector<T>& values) {
    T* to = add<T>(name, static_cast<int64_t>(values.size()));
    if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  void add(VectorArray array) { arrays_.push_back(std::move(array)); }

  // Null when there is no such array.
  template <class T>
  const T* find(std::string_view name) const {
    for (const VectorArray& array : arrays_) {
      if (array.name == name && array.type == kVectorType<T>) {
        return reinterpret_cast<const T*>(array.bytes.data());
      }
    }
    return nullptr;
  }
  template <class T>
  const T* at(std::string_view name) const {
    const T* found = find<T>(name);
    if (found == nullptr) throw std::runtime_error(operation_ + " has no " + std::string(name));
    return found;
  }

 private:
  std::string operation_;
  std::vector<int64_t> sizes_;
  std::vector<VectorArray> arrays_;
};

// For messages: the operation and its sizes.
inline std::string describe(const VectorCase& one) {
  std::string text = one.operation();
  for (const int64_t size : one.sizes()) text.append(" ").append(std::to_string(size));
  return text;
}

struct VectorHeader {
  char name[32] = {};
  char type[8] = {};
  uint64_t bytes = 0;
  uint64_t zero[2] = {};
};
static_assert(sizeof(VectorHeader) == kVectorAlignment);

inline void write_vectors(const std::string& path, const std::vector<VectorCase>& cases) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const auto write = [&](const char* name, const char* type, const void* data, int64_t bytes) {
    VectorHeader header;
    std::memcpy(header.name, name, std::strlen(name));
    std::memcpy(header.type, type, std::strlen(type));
    header.bytes = static_cast<uint64_t>(bytes);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(static_cast<const char*>(data), bytes);
    const char zeros[kVectorAlignment] = {};
    file.write(zeros, align_up(bytes, kVectorAlignment) - bytes);
  };
  for (const VectorCase& one : cases) {
    write(one.operation().c_str(), "case", one.sizes().data(),
          static_cast<int64_t>(one.sizes().size() * sizeof(int64_t)));
    for (const VectorArray& array : one.arrays()) {
      write(array.name, array.type, array.bytes.data(), array.bytes.size_bytes());
    }
  }
  if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
}

inline std::vector<VectorCase> read_vectors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  std::vector<VectorCase> cases;
  VectorHeader header;
  while (file.read(reinterpret_cast<char*>(&header), sizeof header)) {
    VectorArray array;
    std::memcpy(array.name, header.name, sizeof array.name);
    std::memcpy(array.type, header.type, sizeof array.type);
    const auto bytes = static_cast<int64_t>(header.bytes);
    array.bytes = AlignedBytes(bytes);
    if (!file.read(reinterpret_cast<char*>(array.bytes.data()), bytes)) break;
    file.ignore(align_up(bytes, kVectorAlignment) - bytes);
    if (std::string_view(array.type) == "case") {
      std::vector<int64_t> sizes(static_cast<size_t>(bytes) / sizeof(int64_t));
      std::memcpy(sizes.data(), array.bytes.data(), sizes.size() * sizeof(int64_t));
      cases.emplace_back(array.name, std::move(sizes));
    } else if (!cases.empty()) {
      cases.back().add(std::move(array));
    }
  }
  if (!file.eof()) throw std::runtime_error(path + ": is cut short");
  return cases;
}

}  // namespace k3
