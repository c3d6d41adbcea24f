// Seeded random UTF-8 for properties that must hold for any text.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace k3 {

inline void append_utf8(std::string& text, char32_t c) {
  const auto add = [&text](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | c >> 6);
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

inline std::string to_utf8(std::u32string_view characters) {
  std::string text;
  for (const char32_t c : characters) append_utf8(text, c);
  return text;
}

// Any character, the low ones more often; never a surrogate.
inline char32_t random_character(std::mt19937& random) {
  constexpr char32_t kEnds[] = {0x80, 0x250, 0x3100, 0x10000, 0x20000, 0x110000};
  const char32_t end = kEnds[random() % std::size(kEnds)];
  const auto c = static_cast<char32_t>(random() % end);
  return c >= 0xD800 && c < 0xE000 ? U'a' : c;
}

inline std::string repeat(std::string_view part, int64_t times) {
  std::string text;
  text.reserve(part.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) text += part;
  return text;
}

}  // namespace k3
