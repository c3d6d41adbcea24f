// Byte-pair encoding: the ranks of tiktoken.model, and the merging of a piece of text into them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace k3 {

// The tokens of a vocabulary in the order of their ranks, which are also their ids.
class TokenRanks {
 public:
  // Reads tiktoken.model: on line k + 1 the base64 of token k's bytes, one space, and k. `name` is
  // for messages. Throws Error naming the line for anything else: base64 that is not canonical, a
  // rank out of order, an empty or repeated token; and when one of the 256 single bytes is no
  // token, because then there would be text without an encoding.
  TokenRanks(const std::string& name, std::span<const std::byte> tiktoken_model);

  // Not copied, because the index points into the bytes.
  TokenRanks(const TokenRanks&) = delete;
  TokenRanks& operator=(const TokenRanks&) = delete;
  TokenRanks(TokenRanks&&) = default;
  TokenRanks& operator=(TokenRanks&&) = default;

  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }

  // The bytes of the token `rank`, 0 <= rank < size(). Lives as long as this object.
  std::string_view bytes(int32_t rank) const;

  // The rank of the token that consists of exactly `bytes`.
  std::optional<int32_t> find(std::string_view bytes) const;

 private:
  std::vector<char> bytes_;           // all tokens, one after the other
  std::vector<size_t> begins_ = {0};  // where token r begins in bytes_; one more for the end
  std::unordered_map<std::string_view, int32_t> rank_of_;
  size_t longest_bytes_ = 0;
};

// Appends the tokens of `piece` to `ids`. A piece that is a token is that token. Otherwise: from
// single bytes, join the neighbours whose concatenation has the lowest rank, the leftmost of
// equals, until no concatenation is a token. O(n log n) for a piece of n bytes.
void encode_piece(const TokenRanks& ranks, std::string_view piece, std::vector<int32_t>& ids);

}  // namespace k3
