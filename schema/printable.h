// Text from a file, made fit for one line of a message.
#pragma once

#include <string>
#include <string_view>

namespace k3 {

inline bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

// Control characters become \xNN, and what is longer than 160 bytes is cut: a name that an attacker
// chose can neither break a message into lines nor fill the screen.
inline std::string printable(std::string_view text) {
  constexpr size_t kLongest = 160;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string line;
  for (const char c : text.substr(0, kLongest)) {
    if (!is_control(c)) {
      line += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    line += "\\x";
    line += kHex[byte >> 4];
    line += kHex[byte & 15u];
  }
  if (text.size() > kLongest) line += "...";
  return line;
}

}  // namespace k3
