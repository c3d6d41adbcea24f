// THE list of formats: how numbers become codes and scales. Element arithmetic is in
// formats/NAME.h, places in layout.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace k3 {

// The values are on disk (pack.fbs). Append only.
enum class Format : uint8_t {
  kF32 = 0,
  kBf16 = 1,
  kInt8 = 2,
  kMxfp4 = 3,
  kTernary = 4,
  kTernary2 = 5,
};

struct FormatRow {
  Format format;
  std::string_view name;
  int64_t group_inputs;   // consecutive inputs of a row that share one scale; 0: no scales
  std::string_view what;  // one line for --help and the spec
};

// All formats, in the order of their on-disk values.
std::span<const FormatRow> formats();

std::string_view format_name(Format format);
std::optional<Format> parse_format(std::string_view name);

}  // namespace k3
