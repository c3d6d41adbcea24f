#include "runtime/byte_pair.h"

#include <random>

#include <gtest/gtest.h>

#include "nano_tokenizer.h"
#include "random_text.h"
#include "schema/error.h"

namespace k3 {
namespace {

// The lines of the 256 single bytes, as every vocabulary begins.
std::string single_byte_lines() {
  const std::vector<std::byte> file = nano_file("tiktoken.model");
  const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
  size_t end = 0;
  for (int line = 0; line < 256; ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

TokenRanks parse(const std::string& text) {
  return {"t.model", bytes_of(text)};
}

TokenRanks nano_ranks() {
  return {"nano", nano_file("tiktoken.model")};
}

std::vector<int32_t> encode(const TokenRanks& ranks, std::string_view piece) {
  std::vector<int32_t> ids;
  encode_piece(ranks, piece, ids);
  return ids;
}

// The definition, without the whole-piece rule: search all neighbours, join, start over.
std::vector<int32_t> encode_naively(const TokenRanks& ranks, std::string_view piece) {
  std::vector<std::string> parts;
  for (const char byte : piece) parts.emplace_back(1, byte);
  for (;;) {
    size_t best = parts.size();
    int32_t best_rank = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::optional<int32_t> rank = ranks.find(parts[i] + parts[i + 1]);
      if (rank && (best == parts.size() || *rank < best_rank)) {
        best = i;
        best_rank = *rank;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) ids.push_back(ranks.find(part).value());
  return ids;
}

void expect_refused(const std::string& text, const std::string& message) {
  try {
    parse(text);
    FAIL() << "accepted, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(TokenRanks, TokensAreFoundByBytesAndByRank) {
  const TokenRanks ranks = parse(single_byte_lines() + "YWE= 256\nYWJj 257");
  EXPECT_EQ(ranks.size(), 258);
  EXPECT_EQ(ranks.bytes(256), "aa");
  EXPECT_EQ(ranks.find("abc"), 257);
  EXPECT_EQ(ranks.find("ab"), std::nullopt);
  EXPECT_EQ(ranks.find(std::string(1, '\0')), 0);
  EXPECT_EQ(ranks.find(""), std::nullopt);
}

TEST(TokenRanks, MovedRanksKeepTheirTokens) {
  TokenRanks first = parse(single_byte_lines() + "YWE= 256\n");
  const TokenRanks second = std::move(first);
  EXPECT_EQ(second.find("aa"), 256);
}

TEST(TokenRanks, MalformedLinesAreNamedByNumber) {
  const std::string bytes = single_byte_lines();
  expect_refused(bytes + "YWE=\n",
                 "t.model: line 257 is \"YWE=\", expected base64, a space and a rank");
  expect_refused(bytes + "\n", "t.model: line 257 is \"\", expected base64, a space and a rank");
  expect_refused(bytes + " 256\n",
                 "t.model: line 257 is \" 256\", expected base64, a space and a rank");
  expect_refused(bytes +
                     "Y\x01"
                     "E= 256\n",
                 "t.model: line 257: token is \"Y?E=\", expected base64");
  for (const char* token : {"YWE", "YW=E", "Y===", "====", "YW-_", "YWF=", "YQ==YQ=="}) {
    expect_refused(bytes + token + " 256\n",
                   "t.model: line 257: token is \"" + std::string(token) + "\", expected base64");
  }
  for (const char* rank :
       {"255", "257", "0256", "+256", "-256", "256 ", "256\r", "", "99999999999"}) {
    std::string shown = rank;
    if (shown.ends_with('\r')) shown.back() = '?';
    expect_refused(bytes + "YWE= " + rank + "\n",
                   "t.model: line 257: rank is \"" + shown + "\", expected 256");
  }
}

TEST(TokenRanks, RepeatedTokenIsRefused) {
  expect_refused(single_byte_lines() + "YQ== 256\n",
                 "t.model: line 257: the token is also on line 98");
}

TEST(TokenRanks, VocabularyWithoutASingleByteIsRefused) {
  std::string bytes = single_byte_lines();
  expect_refused(bytes.substr(0, bytes.rfind('\n', bytes.size() - 2) + 1),
                 "t.model: no token is the single byte 255, expected all 256");
  expect_refused("", "t.model: no token is the single byte 0, expected all 256");
}

TEST(EncodePiece, LowestRankIsJoinedFirst) {
  const TokenRanks ranks = parse(single_byte_lines() + "YmM= 256\nYWI= 257\n");  // bc, ab
  EXPECT_EQ(encode(ranks, "abc"), (std::vector<int32_t>{'a', 256}));
}

TEST(EncodePiece, LeftmostOfEqualPairsIsJoinedFirst) {
  const TokenRanks ranks = parse(single_byte_lines() + "YWE= 256\n");  // aa
  EXPECT_EQ(encode(ranks, "aaa"), (std::vector<int32_t>{256, 'a'}));
  EXPECT_EQ(encode(ranks, "aaaaa"), (std::vector<int32_t>{256, 256, 'a'}));
}

TEST(EncodePiece, PieceThatIsATokenIsEmittedWholeEvenIfNoJoinsLeadToIt) {
  const TokenRanks ranks = parse(single_byte_lines() + "YWJj 256\n");  // abc, without ab and bc
  EXPECT_EQ(encode(ranks, "abc"), (std::vector<int32_t>{256}));
  EXPECT_EQ(encode(ranks, "abca"), (std::vector<int32_t>{'a', 'b', 'c', 'a'}));
}

TEST(EncodePiece, AppendsAndAcceptsNothing) {
  const TokenRanks ranks = nano_ranks();
  std::vector<int32_t> ids = {7};
  encode_piece(ranks, "", ids);
  encode_piece(ranks, "a", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{7, 97}));
}

TEST(EncodePiece, EqualsTheNaiveDefinition) {
  const TokenRanks ranks = nano_ranks();
  std::mt19937 random(3);
  const auto check = [&ranks](const std::string& piece) {
    if (!ranks.find(piece)) {
      ASSERT_EQ(encode(ranks, piece), encode_naively(ranks, piece));
    }
  };
  for (int round = 0; round < 3000; ++round) {
    std::string tokens;  // overlapping merges: text made of the vocabulary itself
    while (tokens.size() < 40) {
      tokens += ranks.bytes(static_cast<int32_t>(random() % static_cast<uint32_t>(ranks.size())));
    }
    check(tokens);
    std::string letters;  // many ties
    while (letters.size() < 40) letters += "aeinst "[random() % 7];
    check(letters);
    std::string bytes;
    while (bytes.size() < 40) bytes += static_cast<char>(random() % 256);
    check(bytes);
  }
  for (const char* letter : {"e", " ", "o", "=", "-", "\xF0\x9F\x98\x80"}) {
    check(repeat(letter, 300));
  }
}

// The naive definition takes hours for this.
TEST(EncodePiece, MegabyteOfOneLetterIsNotQuadratic) {
  const TokenRanks ranks = nano_ranks();
  const int64_t bytes = 1'000'000;
  int64_t total = 0;
  for (const int32_t id : encode(ranks, repeat(" ", bytes))) {
    total += static_cast<int64_t>(ranks.bytes(id).size());
  }
  EXPECT_EQ(total, bytes);
  EXPECT_EQ(encode(ranks, repeat("x", bytes)).size(), static_cast<size_t>(bytes));
}

}  // namespace
}  // namespace k3
