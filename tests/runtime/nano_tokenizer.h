// The tokenizer files of the checkpoint in examples/nano: 2032 ranks, 16 special tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer.h"
#include "schema/file.h"

namespace k3 {

inline constexpr int64_t kNanoVocabSize = 2048;

inline std::vector<std::byte> nano_file(const std::string& name) {
  return read_whole_file(K3_SOURCE_DIR "/examples/nano/checkpoint/" + name, 1 << 20);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The bytes of the tokens, one after the other.
inline std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

inline Tokenizer nano_tokenizer() {
  return {"nano", nano_file("tiktoken.model"), nano_file("tokenizer_config.json"), kNanoVocabSize};
}

}  // namespace k3
