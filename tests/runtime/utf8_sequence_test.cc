#include "runtime/utf8_sequence.h"

#include <gtest/gtest.h>

#include "random_text.h"

namespace k3 {
namespace {

TEST(Utf8Sequence, EveryCharacterDecodesToItself) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Sequence sequence = first_utf8_sequence(text + "x");
    ASSERT_EQ(sequence.kind, Utf8Sequence::Kind::kCharacter);
    ASSERT_EQ(sequence.bytes, static_cast<int64_t>(text.size()));
    ASSERT_EQ(sequence.character, c);
  }
}

TEST(Utf8Sequence, EveryProperStartOfACharacterIsCut) {
  for (char32_t c = 0x80; c < 0x110000; c += 61) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    for (size_t bytes = 1; bytes < text.size(); ++bytes) {
      const Utf8Sequence sequence = first_utf8_sequence(std::string_view(text).substr(0, bytes));
      ASSERT_EQ(sequence.kind, Utf8Sequence::Kind::kCut);
      ASSERT_EQ(sequence.bytes, static_cast<int64_t>(bytes));
    }
  }
}

TEST(Utf8Sequence, OverlongFormsSurrogatesAndLargeValuesAreFaults) {
  for (const std::string_view text : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                                      "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5", "\xFF"}) {
    const Utf8Sequence sequence = first_utf8_sequence(text);
    EXPECT_EQ(sequence.kind, Utf8Sequence::Kind::kFault);
    EXPECT_EQ(sequence.bytes, 1);
  }
}

TEST(Utf8Sequence, FaultIsFoundAtTheStartOfItsSequence) {
  EXPECT_EQ(find_utf8_fault(""), std::nullopt);
  EXPECT_EQ(find_utf8_fault("a\xC3\xA9"), std::nullopt);
  EXPECT_EQ(find_utf8_fault("a\xC3\xA9\xFF"), 3);
  EXPECT_EQ(find_utf8_fault("ab\xF0\x9F\x98"), 2);  // the text ends inside a character
  EXPECT_EQ(find_utf8_fault("ab\xF0\x9Fxy"), 2);
}

}  // namespace
}  // namespace k3
