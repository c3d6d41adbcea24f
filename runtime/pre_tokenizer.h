// Cuts text into the pieces that byte-pair encoding works on, exactly as the release's tokenizer
// does.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace k3 {

inline constexpr int64_t kSliceCharacters = 400'000;  // of the tokenizer's code in the checkpoint
inline constexpr int64_t kRunCharacters = 25'000;     // the same; see cut_slices

// Cuts valid UTF-8 into slices of at most kSliceCharacters characters, and each of them where a run
// of whitespace or of anything else would exceed kRunCharacters. Pieces never cross a slice, so the
// cuts show in the ids and have to be the original's. The slices point into `text`.
std::vector<std::string_view> cut_slices(std::string_view text);

// Immutable, and safe to use from several threads.
class PreTokenizer {
 public:
  enum class Engine {
    kCompiled,     // machine code, where PCRE2 can make it; else interpreted
    kInterpreted,  // the same pieces, more slowly
  };

  explicit PreTokenizer(Engine engine = Engine::kCompiled);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // The pieces of `text`, which must be valid UTF-8: none is empty, their concatenation is `text`,
  // and they point into it. Linear in the length of `text`.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
};

}  // namespace k3
