// Turns the bytes of tokens into text that can be shown at once.
//
// A token is bytes, not characters: one emoji may come as four tokens. Decoding token by token
// prints rubbish, and dropping what is incomplete loses the end of the text when generation stops
// inside a character. So the stream holds back an unfinished character, at most three bytes, and
// flush() says what became of it.
#pragma once

#include <string>
#include <string_view>

namespace k3 {

class Utf8Stream {
 public:
  // Takes the next bytes and returns the text that is complete with them: valid UTF-8, in which
  // each fault (see utf8_sequence.h) has become one U+FFFD.
  std::string feed(std::string_view bytes);

  // Ends the text: U+FFFD if a character is still unfinished, else nothing. The stream is then as
  // new.
  std::string flush();

 private:
  std::string held_;  // the start of a character
};

}  // namespace k3
