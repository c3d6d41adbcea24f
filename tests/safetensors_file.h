// A safetensors file read whole, for tests that compare with goldens or with what a program dumped.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "schema/file.h"
#include "schema/safetensors.h"

namespace k3 {

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path)
      : file_(path), header_(read_safetensors_header(file_)) {}

  // The values of one tensor; T is float for F32 and int32_t for I32.
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const int64_t i = index(name);
    constexpr Dtype kWanted =
        sizeof(T) == sizeof(float) && std::is_floating_point_v<T> ? Dtype::kF32 : Dtype::kI32;
    EXPECT_EQ(header_.dtype(i), kWanted) << name;
    std::vector<T> values(static_cast<size_t>(header_.length_bytes(i)) / sizeof(T));
    file_.read_at(header_.offset_bytes(i), std::as_writable_bytes(std::span(values)));
    return values;
  }

  const Shape& shape(const std::string& name) const { return header_.shape(index(name)); }

 private:
  int64_t index(const std::string& name) const {
    for (int64_t i = 0; i < header_.tensors(); ++i) {
      if (header_.name(i) == name) return i;
    }
    throw Error(file_.path(), ": no tensor ", name);
  }

  File file_;
  SafetensorsHeader header_;
};

}  // namespace k3
