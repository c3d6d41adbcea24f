// The element types that safetensors files name, and their sizes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace k3 {

enum class Dtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};

struct DtypeRow {
  Dtype dtype;
  std::string_view name;  // as written in a safetensors header
  int64_t bytes;          // per element
};

inline constexpr std::array<DtypeRow, 15> kDtypes = {{
    {Dtype::kBool, "BOOL", 1},
    {Dtype::kU8, "U8", 1},
    {Dtype::kI8, "I8", 1},
    {Dtype::kF8E4M3, "F8_E4M3", 1},
    {Dtype::kF8E5M2, "F8_E5M2", 1},
    {Dtype::kI16, "I16", 2},
    {Dtype::kU16, "U16", 2},
    {Dtype::kF16, "F16", 2},
    {Dtype::kBf16, "BF16", 2},
    {Dtype::kI32, "I32", 4},
    {Dtype::kU32, "U32", 4},
    {Dtype::kF32, "F32", 4},
    {Dtype::kI64, "I64", 8},
    {Dtype::kU64, "U64", 8},
    {Dtype::kF64, "F64", 8},
}};

inline std::string_view dtype_name(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)].name;
}
inline int64_t dtype_bytes(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)].bytes;
}
inline std::optional<Dtype> parse_dtype(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace k3
