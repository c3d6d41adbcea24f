#include "schema/format.h"

#include <array>

namespace k3 {
namespace {

constexpr std::array<FormatRow, 6> kFormats = {{
    {Format::kF32, "f32", 0, "IEEE binary32, as in the checkpoint"},
    {Format::kBf16, "bf16", 0, "bfloat16, as in the checkpoint"},
    {Format::kInt8, "int8", 160, "codes -127..127, u8 multiplier per 160 inputs, f32 row scale"},
    {Format::kMxfp4, "mxfp4", 32, "E2M1 codes with one E8M0 scale per 32 inputs, never re-encoded"},
    {Format::kTernary, "ternary", 160, "trits, five a byte; multiplier and row scale as for int8"},
    {Format::kTernary2, "ternary2", 160, "two trits a code, 3 t1 + t2; scales as for int8"},
}};

}  // namespace

std::span<const FormatRow> formats() {
  return kFormats;
}

std::string_view format_name(Format format) {
  return kFormats[static_cast<size_t>(format)].name;
}

std::optional<Format> parse_format(std::string_view name) {
  for (const FormatRow& row : kFormats) {
    if (row.name == name) return row.format;
  }
  return std::nullopt;
}

}  // namespace k3
