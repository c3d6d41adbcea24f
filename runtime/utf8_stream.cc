#include "runtime/utf8_stream.h"

#include "runtime/utf8_sequence.h"

namespace k3 {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string Utf8Stream::feed(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  size_t offset = 0;
  while (offset < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(offset);
    const Utf8Sequence sequence = first_utf8_sequence(rest);
    if (sequence.kind == Utf8Sequence::Kind::kCut) break;
    const auto length = static_cast<size_t>(sequence.bytes);
    text += sequence.kind == Utf8Sequence::Kind::kCharacter ? rest.substr(0, length) : kReplacement;
    offset += length;
  }
  held_.erase(0, offset);
  return text;
}

std::string Utf8Stream::flush() {
  std::string text(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return text;
}

}  // namespace k3
