#include "compiler/synth_tokenizer.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/tokenizer.h"

namespace k3 {
namespace {

Tokenizer tokenizer_of(const SynthPreset& preset) {
  const std::string ranks = synth_tiktoken_model(preset, 0);
  const std::string config = synth_tokenizer_config_json(preset);
  return Tokenizer(std::string(preset.name), std::as_bytes(std::span(ranks)),
                   std::as_bytes(std::span(config)), preset.config.vocab_size);
}

TEST(SynthTokenizer, EveryPresetsVocabularyLoadsAndGoesThereAndBack) {
  const std::string text = "In the beginning, 1611: \xe2\x82\xac and\n  the rest.";
  for (const SynthPreset& preset : synth_presets()) {
    const Tokenizer tokenizer = tokenizer_of(preset);
    EXPECT_EQ(tokenizer.vocab_size(), preset.config.vocab_size);
    EXPECT_EQ(tokenizer.bos_id(), preset.config.bos_token_id);
    const std::vector<int32_t> ids = tokenizer.encode(text);
    EXPECT_LT(ids.size(), text.size());  // something was merged
    std::string back;
    for (const int32_t id : ids) back += tokenizer.token_bytes(id);
    EXPECT_EQ(back, text);
  }
}

TEST(SynthTokenizer, EveryTokenIsTwoEarlierOnesAndNew) {
  const Tokenizer tokenizer = tokenizer_of(find_synth_preset("odd"));
  std::set<std::string, std::less<>> earlier;
  for (int32_t rank = 0; !tokenizer.is_special(rank); ++rank) {
    const std::string_view token = tokenizer.token_bytes(rank);
    if (rank < 256) {
      EXPECT_EQ(token, std::string(1, static_cast<char>(rank)));
    } else {
      bool joined = false;
      for (size_t cut = 1; cut < token.size() && !joined; ++cut) {
        joined = earlier.contains(token.substr(0, cut)) && earlier.contains(token.substr(cut));
      }
      EXPECT_TRUE(joined) << token;
    }
    EXPECT_TRUE(earlier.emplace(token).second) << token;
  }
}

TEST(SynthTokenizer, K3sSpecialTokensHaveTheReleasedIds) {
  const Tokenizer tokenizer = tokenizer_of(find_synth_preset("k3"));
  EXPECT_EQ(tokenizer.special_id("[BOS]"), 163584);
  EXPECT_EQ(tokenizer.special_id("<|end_of_msg|>"), 163586);
  EXPECT_EQ(tokenizer.special_id("[EOT]"), 163593);
  EXPECT_EQ(tokenizer.special_id("<|media_pad|>"), 163605);
  EXPECT_EQ(tokenizer.special_id("<osagent_mode>"), 163649);
  EXPECT_EQ(tokenizer.special_id("[PAD]"), 163839);
  const std::string config = synth_tokenizer_config_json(find_synth_preset("k3"));
  for (const char* row : {"\"<|open|>\",\n      \"special\": false",
                          "\"<|end_of_msg|>\",\n      \"special\": true"}) {
    EXPECT_NE(config.find(row), std::string::npos) << row;
  }
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer_of(find_synth_preset("kimi-linear")).special_id("<|im_end|>"), 163586);
}

TEST(SynthTokenizer, AnotherSeedMakesAnotherVocabulary) {
  const SynthPreset& nano = find_synth_preset("nano");
  EXPECT_EQ(synth_tiktoken_model(nano, 1), synth_tiktoken_model(nano, 1));
  EXPECT_NE(synth_tiktoken_model(nano, 1), synth_tiktoken_model(nano, 2));
}

}  // namespace
}  // namespace k3
