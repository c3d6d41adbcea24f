// The release's pattern, translated for PCRE2.
//
// The original is written for Rust's regex crate inside tiktoken; PCRE2 accepts most of it and then
// means something else. Four things are translated:
//
//   &&         Rust intersects classes, PCRE2 10.42 reads two literal ampersands. The general
//              categories partition all characters, so "these categories but not Han" is the
//              complement of "all other categories, and Han": one negated class. That is better
//              than a look-ahead before every character, because a repeated class is matched
//              without a stack; a repeated group of 25,000 characters exhausts the compiled code's.
//   \p{Han}    Rust means the property Script, PCRE2 since 10.40 Script_Extensions, which contains
//              the ideographic comma and full stop among others. \p{sc:Han} says the former.
//   \s         Rust means White_Space. PCRE2 adds U+180E, which has been a format character since
//              Unicode 6.3. The class is spelled out; White_Space no longer changes.
//   (?i:'s)    Both fold case by Unicode, so U+017F LONG S counts as an s. Nothing to translate.
//
// Each alternative is tried where the last piece ended, never searched for: together they accept
// any character. None goes quadratic. What an alternative scans in vain is taken by the next one
// that matches, except that alternative 2 may give back a run of capitals, which alternative 3 then
// takes whole.
//
// The tables are those of PCRE2's Unicode version, 14 in Debian 12; tiktoken's are newer or older
// with its release. Characters assigned in between are unassigned to one of the two, and may be cut
// differently. They decode to themselves all the same.
#include "runtime/pre_tokenizer.h"

#include "runtime/utf8_sequence.h"
#include "schema/error.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace k3 {
namespace {

// Inside a class. White_Space of Unicode's PropList.txt.
#define K3_SPACE \
  R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"
// The original's [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]].
#define K3_UPPER R"([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
// The original's [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]].
#define K3_LOWER R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])"
#define K3_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"

constexpr std::string_view kPattern =
    R"([\p{sc:Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?)" K3_UPPER "*" K3_LOWER "+" K3_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?)" K3_UPPER "+" K3_LOWER "*" K3_CONTRACTION R"(|\p{N}{1,3})"
    R"(| ?[^)" K3_SPACE R"(\p{L}\p{N}]+[\r\n]*)"
    "|[" K3_SPACE R"(]*[\r\n]+)"
    "|[" K3_SPACE "]+(?![^" K3_SPACE
    "])"
    "|[" K3_SPACE "]+";

#undef K3_SPACE
#undef K3_UPPER
#undef K3_LOWER
#undef K3_CONTRACTION

// Python's str.isspace, which decides where the original cuts runs: White_Space and the four
// information separators.
bool is_python_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace

std::vector<std::string_view> cut_slices(std::string_view text) {
  std::vector<std::string_view> slices;
  size_t begin = 0;        // of the slice, in bytes
  int64_t characters = 0;  // since the last cut at kSliceCharacters; the cuts of runs do not count
  int64_t run = 0;
  bool run_is_space = false;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Sequence sequence = first_utf8_sequence(text.substr(offset));
    K3_CHECK(sequence.kind == Utf8Sequence::Kind::kCharacter);
    const bool is_space = is_python_space(sequence.character);
    const bool slice_is_full = characters == kSliceCharacters;
    const bool run_is_full = run == kRunCharacters && is_space == run_is_space;
    if (slice_is_full || run_is_full) {
      slices.push_back(text.substr(begin, offset - begin));
      begin = offset;
      run = 0;
    }
    if (slice_is_full) characters = 0;
    run = is_space == run_is_space ? run + 1 : 1;
    run_is_space = is_space;
    ++characters;
    offset += static_cast<size_t>(sequence.bytes);
  }
  if (begin < text.size()) slices.push_back(text.substr(begin));
  return slices;
}

struct PreTokenizer::Pattern {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, Free> code;
};

PreTokenizer::PreTokenizer(Engine engine) : pattern_(std::make_unique<Pattern>()) {
  int fault = 0;
  PCRE2_SIZE fault_offset = 0;
  pattern_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.data()), kPattern.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &fault, &fault_offset,
                                     nullptr));
  if (pattern_->code == nullptr) {
    throw Error("pre-tokenizer: PCRE2 ", PCRE2_MAJOR, ".", PCRE2_MINOR,
                " refuses the pattern at offset ", fault_offset, " with error ", fault,
                ", expected a PCRE2 of 10.40 or later, built with Unicode");
  }
  // Systems that forbid writable code refuse this, and pcre2_match then interprets.
  if (engine == Engine::kCompiled) pcre2_jit_compile(pattern_->code.get(), PCRE2_JIT_COMPLETE);
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, Pattern::Free> match(
      pcre2_match_data_create_from_pattern(pattern_->code.get(), nullptr));
  K3_CHECK(match != nullptr);
  std::vector<std::string_view> pieces;
  for (const std::string_view slice : cut_slices(text)) {
    size_t begin = 0;
    while (begin < slice.size()) {
      // cut_slices has seen that the text is UTF-8; checking it again for each piece is quadratic.
      const int found =
          pcre2_match(pattern_->code.get(), reinterpret_cast<PCRE2_SPTR>(slice.data()),
                      slice.size(), begin, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      K3_CHECK(found > 0);
      const size_t end = pcre2_get_ovector_pointer(match.get())[1];
      K3_CHECK(end > begin);
      pieces.push_back(slice.substr(begin, end - begin));
      begin = end;
    }
  }
  return pieces;
}

}  // namespace k3
