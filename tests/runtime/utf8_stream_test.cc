#include "runtime/utf8_stream.h"

#include <random>

#include <gtest/gtest.h>

#include "random_text.h"
#include "runtime/utf8_sequence.h"

namespace k3 {
namespace {

constexpr std::string_view kFffd = "\xEF\xBF\xBD";

std::string decode_all(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.feed(bytes);
  return text + stream.flush();
}

TEST(Utf8Stream, EmojiOverFourTokensComesOutWithTheLastOne) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("\xF0"), "");
  EXPECT_EQ(stream.feed("\x9F"), "");
  EXPECT_EQ(stream.feed("\x98"), "");
  EXPECT_EQ(stream.feed("\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Utf8Stream, TextBeforeAnUnfinishedCharacterIsNotHeldBack) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("ab\xC3"), "ab");
  EXPECT_EQ(stream.feed("\xA9xy\xE2\x82"), "\xC3\xA9xy");
  EXPECT_EQ(stream.feed("\xAC"), "\xE2\x82\xAC");
}

TEST(Utf8Stream, StopInsideACharacterShowsOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("ok \xF0\x9F\x98"), "ok ");
  EXPECT_EQ(stream.flush(), kFffd);
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.feed("\x80"), kFffd);  // nothing of the old text is left to complete
}

TEST(Utf8Stream, UnfinishedCharacterThatIsNotContinuedBecomesOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.feed("\xF0\x9F"), "");
  EXPECT_EQ(stream.feed("A"), std::string(kFffd) + "A");
}

// Tables 3-8 to 3-11 of the Unicode Standard: how many U+FFFD the practice of WHATWG gives.
TEST(Utf8Stream, FaultsAreReplacedPerMaximalSubpart) {
  EXPECT_EQ(decode_all("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), repeat(kFffd, 8) + "A");
  EXPECT_EQ(decode_all("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), repeat(kFffd, 8) + "A");
  EXPECT_EQ(decode_all("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            repeat(kFffd, 5) + "A" + repeat(kFffd, 2) + "B");
  EXPECT_EQ(decode_all("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), repeat(kFffd, 4) + "A");
}

TEST(Utf8Stream, ValidTextComesOutUnchangedHoweverItIsCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 50; ++i) append_utf8(text, random_character(random));
    Utf8Stream stream;
    std::string shown;
    for (size_t offset = 0; offset < text.size();) {
      const size_t bytes = 1 + random() % 6;
      const std::string part = stream.feed(std::string_view(text).substr(offset, bytes));
      ASSERT_EQ(find_utf8_fault(part), std::nullopt);
      shown += part;
      offset += bytes;
    }
    ASSERT_EQ(shown, text);
    ASSERT_EQ(stream.flush(), "");
  }
}

TEST(Utf8Stream, AnyBytesGiveTheSameValidTextHoweverTheyAreCut) {
  constexpr std::string_view kBytes = "A\x80\x8F\x90\x9F\xA0\xBF\xC2\xE0\xE1\xED\xF0\xF1\xF4\xFF";
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 20; ++i) bytes += kBytes[random() % kBytes.size()];
    Utf8Stream stream;
    std::string shown;
    for (const char byte : bytes) shown += stream.feed({&byte, 1});
    shown += stream.flush();
    ASSERT_EQ(shown, decode_all(bytes));
    ASSERT_EQ(find_utf8_fault(shown), std::nullopt);
  }
}

}  // namespace
}  // namespace k3
