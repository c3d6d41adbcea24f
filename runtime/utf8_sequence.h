// One step through bytes that may or may not be UTF-8.
//
// The rules are the byte ranges of Unicode's table 3-7 (no overlong forms, no surrogates, nothing
// beyond U+10FFFF). What breaks them is cut as WHATWG's decoder cuts it: the longest start of a
// well-formed sequence is one fault, so that every program shows the same number of U+FFFD.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace k3 {

struct Utf8Sequence {
  enum class Kind {
    kCharacter,  // a whole character
    kFault,      // bytes that no character starts with
    kCut,        // the text ends inside a character
  };
  Kind kind = Kind::kFault;
  int64_t bytes = 0;       // how many it takes, at least 1
  char32_t character = 0;  // for kCharacter
};

// The sequence at the start of `text`, which is not empty.
Utf8Sequence first_utf8_sequence(std::string_view text);

// Where `text` stops being UTF-8, in bytes from its start; empty when all of it is.
std::optional<int64_t> find_utf8_fault(std::string_view text);

}  // namespace k3
