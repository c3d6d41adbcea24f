#include "compiler/synth_tokenizer.h"

#include <array>
#include <span>
#include <sstream>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "compiler/synth_random.h"
#include "schema/error.h"
#include "schema/json_writer.h"

namespace k3 {
namespace {

constexpr int64_t kSingleBytes = 256;

struct SpecialRow {
  int64_t number;  // from the first special id
  std::string_view name;
  bool flagged;  // "special" in tokenizer_config.json: left out of text shown to people
};

constexpr std::array kKimiK3Specials = {
    SpecialRow{0, "[BOS]", true},
    SpecialRow{1, "[EOS]", true},
    SpecialRow{kEosSpecial, "<|end_of_msg|>", true},
    SpecialRow{3, "<|open|>", false},
    SpecialRow{4, "<|close|>", false},
    SpecialRow{5, "<|sep|>", false},
    SpecialRow{6, "[start_header_id]", true},
    SpecialRow{7, "[end_header_id]", true},
    SpecialRow{9, "[EOT]", true},
    SpecialRow{18, "<|media_begin|>", true},
    SpecialRow{19, "<|media_content|>", true},
    SpecialRow{20, "<|media_end|>", true},
    SpecialRow{kMediaPadSpecial, "<|media_pad|>", true},
    SpecialRow{65, "<osagent_mode>", true},
};
constexpr std::array kKimiLinearSpecials = {
    SpecialRow{0, "[BOS]", true},
    SpecialRow{1, "[EOS]", true},
    SpecialRow{kEosSpecial, "<|im_end|>", true},
    SpecialRow{3, "<|im_user|>", true},
    SpecialRow{4, "<|im_assistant|>", true},
    SpecialRow{6, "[start_header_id]", true},
    SpecialRow{7, "[end_header_id]", true},
    SpecialRow{9, "[EOT]", true},
    SpecialRow{10, "<|im_system|>", true},
    SpecialRow{17, "<|im_middle|>", true},
};

std::span<const SpecialRow> special_rows(const SynthPreset& preset) {
  if (preset.family == SynthFamily::kKimiK3) return kKimiK3Specials;
  return kKimiLinearSpecials;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      const size_t at = i + k;
      bits = bits << 8 | (at < bytes.size() ? static_cast<unsigned char>(bytes[at]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : kDigits[(bits >> (18 - 6 * k)) & 63u];
    }
  }
  return text;
}

// Draws tokens until `ranks` are there. A token is a beginning (a letter, a space, or an earlier
// token) and an end (a letter, or an earlier token without a space), at most kLongest bytes.
std::vector<std::string> make_tokens(int64_t ranks, const RandomStream& random) {
  // Letters about as often as in English; the space opens a word as in " the".
  constexpr std::string_view kLetters = "eeeeettttaaaooooiiinnnssshhrrrddlllucmfwygpbvkxjqz";
  constexpr std::string_view kBeginnings = "    eetaoinshrdlcumwfgypbvkTAISWCBH";
  constexpr size_t kLongest = 14;
  std::vector<std::string> tokens;
  std::unordered_set<std::string> known;
  for (int64_t byte = 0; byte < kSingleBytes; ++byte) {
    known.insert(tokens.emplace_back(1, static_cast<char>(byte)));
  }
  uint64_t drawn = 0;
  const auto draw = [&](uint64_t limit) { return random.below(drawn++, limit); };
  // Half of the halves are single bytes, so that tokens grow slowly and short ones come first.
  const auto draw_half = [&](std::string_view letters) {
    const uint64_t joined = tokens.size() - kSingleBytes;
    if (joined == 0 || draw(2) == 0) return std::string(1, letters[draw(letters.size())]);
    return tokens[kSingleBytes + draw(joined)];
  };
  while (std::ssize(tokens) < ranks) {
    std::string token = draw_half(kBeginnings);
    const std::string end = draw_half(kLetters);
    if (end.front() == ' ' || (end.front() >= 'A' && end.front() <= 'Z')) continue;
    token += end;
    if (token.size() <= kLongest && known.insert(token).second) tokens.push_back(std::move(token));
  }
  return tokens;
}

void write_special(JsonWriter& json, int64_t id, std::string_view name, bool flagged) {
  json.key(std::to_string(id));
  json.begin_object();
  json.member("content", name);
  json.member("special", flagged);
  for (const char* other : {"lstrip", "rstrip", "normalized", "single_word"}) {
    json.member(other, false);
  }
  json.end_object();
}

}  // namespace

std::string synth_tiktoken_model(const SynthPreset& preset, uint64_t seed) {
  const int64_t ranks = preset.first_special_id();
  K3_CHECK(ranks >= kSingleBytes);
  std::string text;
  int64_t rank = 0;
  for (const std::string& token : make_tokens(ranks, RandomStream(seed, "tiktoken.model"))) {
    text.append(base64(token)).append(" ").append(std::to_string(rank++)).append("\n");
  }
  return text;
}

std::string synth_tokenizer_config_json(const SynthPreset& preset) {
  const int64_t last = preset.config.vocab_size - 1;
  std::ostringstream out;
  JsonWriter json(out, 2);
  json.begin_object();
  json.key("added_tokens_decoder");
  json.begin_object();
  for (const SpecialRow& row : special_rows(preset)) {
    const int64_t id = preset.first_special_id() + row.number;
    if (id < last - 1) write_special(json, id, row.name, row.flagged);
  }
  write_special(json, last - 1, "[UNK]", true);
  write_special(json, last, "[PAD]", true);
  json.end_object();
  json.member("bos_token", "[BOS]");
  json.member("eos_token", special_rows(preset)[kEosSpecial].name);
  json.member("pad_token", "[PAD]");
  json.member("unk_token", "[UNK]");
  json.member("tokenizer_class", "TikTokenTokenizer");
  if (preset.adds_bos) json.member("add_bos_token", true);
  json.member("model_max_length", preset.context_length);
  json.end_object();
  return std::move(out).str();
}

}  // namespace k3
