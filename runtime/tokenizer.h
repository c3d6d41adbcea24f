// Text to token ids and back, for vocabularies of tiktoken ranks followed by special tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/byte_pair.h"
#include "runtime/pre_tokenizer.h"

namespace k3 {

// Immutable, and safe to use from several threads.
class Tokenizer {
 public:
  // Of n ranks, ids 0 to n - 1 are ordinary tokens, ids n to vocab_size - 1 special ones. A special
  // token is named by added_tokens_decoder of tokenizer_config.json, or else
  // `<|reserved_token_ID|>` with its own id. Throws Error, which starts with `name` (of the pack,
  // or of the checkpoint), when one of the two files is malformed, has duplicate keys or names, or
  // does not fit vocab_size.
  Tokenizer(const std::string& name, std::span<const std::byte> tiktoken_model,
            std::span<const std::byte> tokenizer_config_json, int64_t vocab_size);

  int64_t vocab_size() const { return ranks_.size() + static_cast<int64_t>(specials_.size()); }

  // The tokens of ordinary text. No text becomes a special token, also not one that spells its
  // name, and no BOS is added. Throws Error with the offset in bytes when the text is not UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;

  // The bytes of one token, for a special one its name. They need not be UTF-8 (see utf8_stream.h)
  // and live as long as the Tokenizer. Throws Error for an id outside the vocabulary.
  std::string_view token_bytes(int32_t id) const;

  bool is_special(int32_t id) const { return id >= ranks_.size() && id < vocab_size(); }
  std::optional<int32_t> special_id(std::string_view name) const;  // empty when no token has it

  int32_t bos_id() const { return bos_id_; }
  bool adds_bos() const { return adds_bos_; }  // whether a document of raw text starts with BOS

 private:
  TokenRanks ranks_;
  PreTokenizer pre_tokenizer_;
  std::vector<std::string> specials_;  // their names, of id ranks_.size() + index
  std::unordered_map<std::string, int32_t> special_ids_;
  int32_t bos_id_ = 0;
  bool adds_bos_ = false;
};

}  // namespace k3
