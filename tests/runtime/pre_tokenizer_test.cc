#include "runtime/pre_tokenizer.h"

#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "random_text.h"
#include "schema/error.h"

namespace k3 {
namespace {

std::vector<std::string> split(std::string_view text) {
  static const PreTokenizer pre_tokenizer;
  std::vector<std::string> pieces;
  for (const std::string_view piece : pre_tokenizer.split(text)) pieces.emplace_back(piece);
  return pieces;
}

using Pieces = std::vector<std::string>;

// A second implementation of the pattern, from its definition: characters with categories looked up
// by hand in UnicodeData.txt and Scripts.txt, and the eight alternatives as loops.

enum class Category {
  kUpper,
  kTitle,
  kLower,
  kModifier,
  kOtherLetter,
  kMark,
  kNumber,
  kSpace,
  kRest
};

struct Character {
  char32_t c;
  Category category;
  bool is_han = false;

  bool is_newline() const { return c == U'\r' || c == U'\n'; }
  bool is_space() const { return category == Category::kSpace; }
  bool is_number() const { return category == Category::kNumber; }
  bool is_lower() const { return category == Category::kLower; }
  bool is_upper() const { return category == Category::kUpper || category == Category::kTitle; }
  bool is_caseless() const {
    return category == Category::kModifier || category == Category::kOtherLetter;
  }
  bool is_mark() const { return category == Category::kMark; }
  bool is_letter() const { return is_upper() || is_lower() || is_caseless(); }
  bool fits_upper_class() const { return !is_han && (is_upper() || is_caseless() || is_mark()); }
  bool fits_lower_class() const { return !is_han && (is_lower() || is_caseless() || is_mark()); }
  bool fits_prefix() const { return !is_newline() && !is_letter() && !is_number(); }
  bool fits_rest() const { return !is_space() && !is_letter() && !is_number(); }
};

constexpr Character kCharacters[] = {
    {U' ', Category::kSpace},
    {U'\t', Category::kSpace},
    {U'\n', Category::kSpace},
    {U'\r', Category::kSpace},
    {0x0B, Category::kSpace},
    {0x0C, Category::kSpace},
    {0x85, Category::kSpace},
    {0xA0, Category::kSpace},
    {0x1680, Category::kSpace},
    {0x2000, Category::kSpace},
    {0x200A, Category::kSpace},
    {0x2028, Category::kSpace},
    {0x2029, Category::kSpace},
    {0x202F, Category::kSpace},
    {0x205F, Category::kSpace},
    {0x3000, Category::kSpace},
    {0x1C, Category::kRest},    // information separators: space to Python only
    {0x1F, Category::kRest},    //
    {0x180E, Category::kRest},  // Mongolian vowel separator: space to PCRE2 only
    {0x200B, Category::kRest},  // zero width space: a format character
    {0xFEFF, Category::kRest},  // byte order mark
    {U'\0', Category::kRest},
    {0x7F, Category::kRest},
    {U'\'', Category::kRest},
    {U'&', Category::kRest},
    {U'!', Category::kRest},
    {U'[', Category::kRest},
    {U'-', Category::kRest},
    {0x1F600, Category::kRest},
    {0x200D, Category::kRest},
    {0x3001, Category::kRest},  // comma: Han by extension only
    {0x3002, Category::kRest},
    {0x30FB, Category::kRest},
    {0x10FFFF, Category::kRest},
    {0xE000, Category::kRest},
    {U'A', Category::kUpper},
    {U'D', Category::kUpper},
    {U'E', Category::kUpper},
    {U'L', Category::kUpper},
    {U'M', Category::kUpper},
    {U'R', Category::kUpper},
    {U'S', Category::kUpper},
    {U'T', Category::kUpper},
    {U'V', Category::kUpper},
    {0xC9, Category::kUpper},
    {0x212A, Category::kUpper},
    {0x1C5, Category::kTitle},
    {U'a', Category::kLower},
    {U'd', Category::kLower},
    {U'e', Category::kLower},
    {U'l', Category::kLower},
    {U'm', Category::kLower},
    {U'r', Category::kLower},
    {U's', Category::kLower},
    {U't', Category::kLower},
    {U'v', Category::kLower},
    {0xE9, Category::kLower},
    {0x17F, Category::kLower},  // long s
    {0x2B0, Category::kModifier},
    {0x30FC, Category::kModifier},
    {0xAA, Category::kOtherLetter},
    {0x3042, Category::kOtherLetter},
    {0xD55C, Category::kOtherLetter},
    {0x5D0, Category::kOtherLetter},
    {0x301, Category::kMark},
    {0xE31, Category::kMark},
    {0x20DD, Category::kMark},
    {U'1', Category::kNumber},
    {0x663, Category::kNumber},
    {0xBD, Category::kNumber},
    {0x2167, Category::kNumber},
    {0x4E2D, Category::kOtherLetter, true},
    {0x20000, Category::kOtherLetter, true},
    {0x3005, Category::kModifier, true},
    {0x3007, Category::kNumber, true},
    {0x2E80, Category::kRest, true},
    {0x16FF0, Category::kMark, true},
};

class SlowMatcher {
 public:
  explicit SlowMatcher(std::vector<Character> text) : text_(std::move(text)) {}

  std::vector<std::string> split() const {
    std::vector<std::string> pieces;
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = match(begin);
      std::string& piece = pieces.emplace_back();
      for (; begin < end; ++begin) append_utf8(piece, text_[begin].c);
    }
    return pieces;
  }

 private:
  using Claim = bool (Character::*)() const;

  size_t match(size_t begin) const {
    for (const auto alternative :
         {&SlowMatcher::han, &SlowMatcher::word_with_lower, &SlowMatcher::word_with_upper,
          &SlowMatcher::number, &SlowMatcher::rest, &SlowMatcher::newlines,
          &SlowMatcher::spaces_before_space, &SlowMatcher::spaces}) {
      if (const std::optional<size_t> end = (this->*alternative)(begin)) return *end;
    }
    ADD_FAILURE() << "no alternative matches at " << begin;
    return text_.size();
  }

  bool at(size_t i, Claim claim) const { return i < text_.size() && (text_[i].*claim)(); }

  size_t run(size_t i, Claim claim) const {
    while (at(i, claim)) ++i;
    return i;
  }

  std::optional<size_t> han(size_t begin) const {
    size_t end = begin;
    while (end < text_.size() && text_[end].is_han) ++end;
    return end > begin ? std::optional(end) : std::nullopt;
  }

  // Alternatives 2 and 3: the greedy classes give back one character after the other.
  std::optional<size_t> word(size_t begin, bool needs_lower) const {
    for (const bool with_prefix : {true, false}) {
      if (with_prefix && !at(begin, &Character::fits_prefix)) continue;
      const size_t first = begin + (with_prefix ? 1 : 0);
      for (size_t middle = run(first, &Character::fits_upper_class);; --middle) {
        const size_t end = run(middle, &Character::fits_lower_class);
        if (needs_lower ? end > middle : middle > first) return contraction(end);
        if (middle == first) break;
      }
    }
    return std::nullopt;
  }
  std::optional<size_t> word_with_lower(size_t begin) const { return word(begin, true); }
  std::optional<size_t> word_with_upper(size_t begin) const { return word(begin, false); }

  // The end of a contraction at `begin`, or `begin` itself.
  size_t contraction(size_t begin) const {
    for (const std::u32string_view suffix : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"}) {
      size_t i = 0;
      while (i < suffix.size() && begin + i < text_.size() &&
             fold(text_[begin + i].c) == suffix[i]) {
        ++i;
      }
      if (i == suffix.size()) return begin + i;
    }
    return begin;
  }
  static char32_t fold(char32_t c) {
    if (c == 0x17F) return U's';
    return c >= U'A' && c <= U'Z' ? c - U'A' + U'a' : c;
  }

  std::optional<size_t> number(size_t begin) const {
    const size_t end = std::min(run(begin, &Character::is_number), begin + 3);
    return end > begin ? std::optional(end) : std::nullopt;
  }

  std::optional<size_t> rest(size_t begin) const {
    const size_t first = begin + (text_[begin].c == U' ' ? 1 : 0);
    const size_t end = run(first, &Character::fits_rest);
    if (end == first) return std::nullopt;
    return run(end, &Character::is_newline);
  }

  std::optional<size_t> newlines(size_t begin) const {
    for (size_t end = run(begin, &Character::is_space); end > begin; --end) {
      if (text_[end - 1].is_newline()) return end;
    }
    return std::nullopt;
  }

  std::optional<size_t> spaces_before_space(size_t begin) const {
    for (size_t end = run(begin, &Character::is_space); end > begin; --end) {
      if (end == text_.size() || text_[end].is_space()) return end;
    }
    return std::nullopt;
  }

  std::optional<size_t> spaces(size_t begin) const {
    const size_t end = run(begin, &Character::is_space);
    return end > begin ? std::optional(end) : std::nullopt;
  }

  std::vector<Character> text_;
};

TEST(PreTokenizer, EqualsASlowMatcherOnNastyText) {
  const PreTokenizer compiled;
  const PreTokenizer interpreted(PreTokenizer::Engine::kInterpreted);
  std::mt19937 random(4);
  for (int round = 0; round < 60'000; ++round) {
    // A few characters at a time, so that runs and repeated contexts are common.
    std::vector<Character> choice;
    for (int i = 0; i < 6; ++i) choice.push_back(kCharacters[random() % std::size(kCharacters)]);
    std::vector<Character> characters;
    std::string text;
    for (size_t length = random() % 24; characters.size() < length;) {
      characters.push_back(choice[random() % choice.size()]);
      append_utf8(text, characters.back().c);
    }
    const Pieces expected = SlowMatcher(characters).split();
    const auto pieces = compiled.split(text);
    ASSERT_EQ(Pieces(pieces.begin(), pieces.end()), expected) << text;
    ASSERT_EQ(interpreted.split(text), pieces) << text;
  }
}

TEST(PreTokenizer, ContractionsEqualASlowMatcher) {
  std::mt19937 random(5);
  constexpr std::u32string_view kLetters =
      U"''''sStTrReEvVmMlLdD\x17F"
      U"aA";
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Character> characters;
    std::string text;
    for (size_t length = random() % 12; characters.size() < length;) {
      const char32_t c = kLetters[random() % kLetters.size()];
      for (const Character& character : kCharacters) {
        if (character.c == c) characters.push_back(character);
      }
      append_utf8(text, c);
    }
    ASSERT_EQ(split(text), SlowMatcher(characters).split()) << text;
  }
}

TEST(PreTokenizer, WordsTakeOneLeadingCharacterAndTheirContraction) {
  EXPECT_EQ(split("it's we'll I'D they'VE"), (Pieces{"it's", " we'll", " I'D", " they'VE"}));
  EXPECT_EQ(split("(word) $x"), (Pieces{"(word", ")", " $", "x"}));
  EXPECT_EQ(split("fooBarBAZ"), (Pieces{"foo", "Bar", "BAZ"}));
}

TEST(PreTokenizer, ContractionsFoldCaseByUnicode) {
  EXPECT_EQ(split("it'\u017F"), (Pieces{"it'\u017F"}));  // long s
}

TEST(PreTokenizer, AmpersandsAreOrdinaryCharacters) {
  EXPECT_EQ(split("a&&b"), (Pieces{"a", "&&", "b"}));
  EXPECT_EQ(split("&b"), (Pieces{"&b"}));
}

TEST(PreTokenizer, HanNeverJoinsOtherLetters) {
  EXPECT_EQ(split("\u4E2D\u6587abc\u4E2D"), (Pieces{"\u4E2D\u6587", "abc", "\u4E2D"}));
  EXPECT_EQ(split("\u3042\u4E2D\u3042"), (Pieces{"\u3042", "\u4E2D", "\u3042"}));
  EXPECT_EQ(split("\u4E2D's it's"), (Pieces{"\u4E2D", "'s", " it's"}));
  EXPECT_EQ(split("A\u4E2Da"), (Pieces{"A", "\u4E2D", "a"}));
}

TEST(PreTokenizer, HanIsAScriptAndNotItsExtensions) {
  EXPECT_EQ(split("\u4E2D\u3002\u4E2D"), (Pieces{"\u4E2D", "\u3002", "\u4E2D"}));
  EXPECT_EQ(split("\u3007\u3005\u4E2D"), (Pieces{"\u3007\u3005\u4E2D"}));  // a number, a modifier
}

TEST(PreTokenizer, LastSpaceOfARunJoinsWhatFollows) {
  EXPECT_EQ(split("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(split("a   1"), (Pieces{"a", "  ", " ", "1"}));
  EXPECT_EQ(split("a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(split(" \n \n  x"), (Pieces{" \n \n", " ", " x"}));
  EXPECT_EQ(split("!\r\n\nx"), (Pieces{"!\r\n\n", "x"}));
}

TEST(PreTokenizer, MongolianVowelSeparatorIsNotASpace) {
  EXPECT_EQ(split(" \u180E "), (Pieces{" \u180E", " "}));
}

TEST(PreTokenizer, NumbersAreCutInThrees) {
  EXPECT_EQ(split("1234567"), (Pieces{"123", "456", "7"}));
}

TEST(PreTokenizer, NothingHasNoPieces) {
  EXPECT_TRUE(split("").empty());
}

// Runs that make a backtracking matcher quadratic, or exhaust its stack or its limits.
TEST(PreTokenizer, MegabytesOfAwkwardRunsAreCutWithoutLoss) {
  const PreTokenizer compiled;
  const PreTokenizer interpreted(PreTokenizer::Engine::kInterpreted);
  for (const char* part :
       {" ", "a", "A", "\u3042", "A\u3042", "\u0301", "\u0301A", "\U0001F600", "\u4E2D", "'", "\n ",
        " \n", "\r\n", "1", "aA", "a's", "word \U0001F600\U0001F600\n", "\u00A0 ", "\u180E"}) {
    const std::string_view unit = part;
    const std::string text = repeat(unit, 1'000'000 / static_cast<int64_t>(unit.size()));
    const auto pieces = compiled.split(text);
    std::string joined;
    for (const std::string_view piece : pieces) joined += piece;
    ASSERT_EQ(joined, text);
    ASSERT_EQ(interpreted.split(text), pieces);
  }
}

std::vector<size_t> slice_bytes(std::string_view text) {
  std::vector<size_t> sizes;
  for (const std::string_view slice : cut_slices(text)) sizes.push_back(slice.size());
  return sizes;
}

using Sizes = std::vector<size_t>;

TEST(CutSlices, RunsAreCutAt25000Characters) {
  EXPECT_EQ(slice_bytes(""), Sizes{});
  EXPECT_EQ(slice_bytes(repeat("a", 25'000)), (Sizes{25'000}));
  EXPECT_EQ(slice_bytes(repeat("a", 25'001)), (Sizes{25'000, 1}));
  EXPECT_EQ(slice_bytes(repeat(" ", 50'001)), (Sizes{25'000, 25'000, 1}));
  EXPECT_EQ(slice_bytes(repeat("\U0001F600", 25'001)), (Sizes{100'000, 4}));
}

TEST(CutSlices, CutComesInsideTheRunAndKeepsWhatStandsBeforeIt) {
  EXPECT_EQ(slice_bytes("b " + repeat("a", 25'001) + " b"), (Sizes{25'002, 3}));
  EXPECT_EQ(slice_bytes(repeat("a", 20'000) + " " + repeat("a", 20'000)), (Sizes{40'001}));
  EXPECT_EQ(slice_bytes(repeat("a", 25'000) + repeat(" ", 25'000) + "a"), (Sizes{50'001}));
}

TEST(CutSlices, InformationSeparatorsAreSpacesAsInPython) {
  EXPECT_EQ(slice_bytes(repeat(" \x1C", 12'500) + " "), (Sizes{25'000, 1}));
  EXPECT_EQ(slice_bytes(repeat("\x1C", 20'000) + repeat("a", 20'000)), (Sizes{40'000}));
  EXPECT_EQ(slice_bytes(repeat("\u180E", 20'000) + repeat("a", 5'001)), (Sizes{65'000, 1}));
}

TEST(CutSlices, SlicesHaveAtMost400000Characters) {
  const std::string words = repeat("\u00E9\u00E9\u00E9 ", 100'000);  // 400,000 characters
  EXPECT_EQ(slice_bytes(words), (Sizes{700'000}));
  EXPECT_EQ(slice_bytes(words + "abc"), (Sizes{700'000, 3}));
  // A run starts anew behind the cut, so it may be 25,000 on both sides.
  const std::string late = repeat("aaa ", 93'750) + repeat("a", 25'000);  // 400,000 characters
  EXPECT_EQ(slice_bytes(late + repeat("a", 25'000)), (Sizes{400'000, 25'000}));
  // Cuts of runs do not move the cuts at 400,000.
  EXPECT_EQ(slice_bytes(repeat("a", 25'001) + repeat(" a", 187'500)), (Sizes{25'000, 375'000, 1}));
}

TEST(CutSlices, PiecesDoNotCrossSlices) {
  const Pieces pieces = split(repeat("a", 25'001) + "'s");
  EXPECT_EQ(pieces, (Pieces{repeat("a", 25'000), "a's"}));
}

}  // namespace
}  // namespace k3
