// The definition of byte-pair encoding asks for the lowest-ranked pair of neighbours again and
// again. Searching all of them each time is quadratic in the piece, and a piece can be long: 25,000
// equal emoji are one piece of 100,000 bytes. We keep the parts in a linked list and the pairs in a
// heap ordered by (rank, position), which is the order of the definition. A join changes two pairs;
// their old entries stay in the heap and are recognised when they come up, because a pair only ever
// grows and different concatenations have different ranks.
#include "runtime/byte_pair.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <queue>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr int kNotBase64 = -1;

constexpr std::array<int, 256> kBase64Values = [] {
  std::array<int, 256> values = {};
  values.fill(kNotBase64);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int>(i);
  }
  return values;
}();

// Appends what `text` encodes to `bytes`. False unless it is canonical: padded to a multiple of
// four and without stray bits, so that no token can be written in two ways.
bool decode_base64(std::string_view text, std::vector<char>& bytes) {
  if (text.size() % 4 != 0) return false;
  const size_t padding = text.size() - (text.find_last_not_of('=') + 1);  // npos + 1 is 0
  if (padding > 2) return false;
  uint32_t bits = 0;
  int bit_count = 0;
  for (const char digit : text.substr(0, text.size() - padding)) {
    const int value = kBase64Values[static_cast<uint8_t>(digit)];
    if (value == kNotBase64) return false;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFFu;
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      bytes.push_back(static_cast<char>(bits >> bit_count & 0xFFu));
    }
  }
  return (bits & ((1u << bit_count) - 1)) == 0;
}

// `text` as a decimal number without sign or leading zeros.
std::optional<int32_t> parse_rank(std::string_view text) {
  int32_t rank = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, rank);
  if (fault != std::errc() || stop != end || rank < 0) return std::nullopt;
  if (text.size() > 1 && (text[0] == '0' || text[0] == '-')) return std::nullopt;
  return rank;
}

// Lines come from outside: a message must stay one readable line.
std::string quote(std::string_view line) {
  constexpr size_t kShown = 40;
  std::string quoted = "\"";
  for (const char c : line.substr(0, kShown)) quoted += c >= ' ' && c <= '~' ? c : '?';
  return quoted + (line.size() > kShown ? "...\"" : "\"");
}

}  // namespace

TokenRanks::TokenRanks(const std::string& name, std::span<const std::byte> tiktoken_model) {
  const std::string_view text(reinterpret_cast<const char*>(tiktoken_model.data()),
                              tiktoken_model.size());
  // Base64 shrinks, so bytes_ never moves and the views in rank_of_ stay good.
  bytes_.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const std::string_view line = text.substr(offset, text.find('\n', offset) - offset);
    offset += line.size() + 1;
    const std::string where = name + ": line " + std::to_string(size() + 1);

    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0) {
      throw Error(where, " is ", quote(line), ", expected base64, a space and a rank");
    }
    if (!decode_base64(line.substr(0, space), bytes_)) {
      throw Error(where, ": token is ", quote(line.substr(0, space)), ", expected base64");
    }
    if (size() > std::numeric_limits<int32_t>::max() ||
        parse_rank(line.substr(space + 1)) != static_cast<int32_t>(size())) {
      throw Error(where, ": rank is ", quote(line.substr(space + 1)), ", expected ", size());
    }
    const auto rank = static_cast<int32_t>(size());
    begins_.push_back(bytes_.size());
    const auto [entry, is_new] = rank_of_.emplace(bytes(rank), rank);
    if (!is_new) throw Error(where, ": the token is also on line ", entry->second + 1);
    longest_bytes_ = std::max(longest_bytes_, bytes(rank).size());
  }
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<char>(value);
    if (!find({&byte, 1})) {
      throw Error(name, ": no token is the single byte ", value, ", expected all 256");
    }
  }
}

std::string_view TokenRanks::bytes(int32_t rank) const {
  K3_CHECK(rank >= 0 && rank < size());
  const size_t begin = begins_[static_cast<size_t>(rank)];
  return {bytes_.data() + begin, begins_[static_cast<size_t>(rank) + 1] - begin};
}

std::optional<int32_t> TokenRanks::find(std::string_view bytes) const {
  if (bytes.size() > longest_bytes_) return std::nullopt;  // keeps a look-up's cost bounded
  const auto entry = rank_of_.find(bytes);
  if (entry == rank_of_.end()) return std::nullopt;
  return entry->second;
}

namespace {

constexpr int32_t kNone = -1;

// A part of the piece begins at byte i if parts[i].length > 0; the others have been joined to it.
struct Part {
  int32_t length = 1;
  int32_t previous = kNone;   // where the part to the left begins
  int32_t pair_rank = kNone;  // of the concatenation with the part to the right, if it is a token
};

class PartList {
 public:
  PartList(const TokenRanks& ranks, std::string_view piece)
      : ranks_(ranks), piece_(piece), parts_(piece.size()) {
    for (int32_t i = 0; i < size(); ++i) {
      at(i).previous = i - 1;
      rank_pair(i);
    }
  }

  void join_all() {
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      if (at(pair.begin).length > 0 && at(pair.begin).pair_rank == pair.rank) join(pair.begin);
    }
  }

  void append_to(std::vector<int32_t>& ids) const {
    for (int32_t i = 0; i < size(); i += at(i).length) {
      const std::optional<int32_t> rank = ranks_.find(text(i, at(i).length));
      K3_CHECK(rank.has_value());
      ids.push_back(*rank);
    }
  }

 private:
  struct Pair {
    int32_t rank;
    int32_t begin;
    auto operator<=>(const Pair&) const = default;
  };

  int32_t size() const { return static_cast<int32_t>(parts_.size()); }
  Part& at(int32_t i) { return parts_[static_cast<size_t>(i)]; }
  const Part& at(int32_t i) const { return parts_[static_cast<size_t>(i)]; }
  std::string_view text(int32_t begin, int32_t length) const {
    return piece_.substr(static_cast<size_t>(begin), static_cast<size_t>(length));
  }

  // Brings the pair that starts with the part at `begin` up to date.
  void rank_pair(int32_t begin) {
    Part& part = at(begin);
    part.pair_rank = kNone;
    const int32_t next = begin + part.length;
    if (next == size()) return;
    const std::optional<int32_t> rank = ranks_.find(text(begin, part.length + at(next).length));
    if (!rank) return;
    part.pair_rank = *rank;
    pairs_.push({*rank, begin});
  }

  void join(int32_t begin) {
    Part& part = at(begin);
    Part& right = at(begin + part.length);
    part.length += right.length;
    right.length = 0;
    const int32_t next = begin + part.length;
    if (next < size()) at(next).previous = begin;
    rank_pair(begin);
    if (part.previous != kNone) rank_pair(part.previous);
  }

  const TokenRanks& ranks_;
  std::string_view piece_;
  std::vector<Part> parts_;
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs_;  // lowest rank, leftmost
};

}  // namespace

void encode_piece(const TokenRanks& ranks, std::string_view piece, std::vector<int32_t>& ids) {
  K3_CHECK(piece.size() < static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  if (const std::optional<int32_t> rank = ranks.find(piece)) {
    ids.push_back(*rank);
    return;
  }
  PartList parts(ranks, piece);
  parts.join_all();
  parts.append_to(ids);
}

}  // namespace k3
