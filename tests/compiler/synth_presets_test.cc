#include "compiler/synth_presets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler/kimi_k3_config.h"
#include "compiler/synth_config.h"
#include "compiler/tensor_rows.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

std::string text_of(const std::string& path) {
  const std::vector<std::byte> bytes = file_bytes(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ModelConfig config_as_read(const SynthPreset& preset) {
  const TempFolder folder;
  return read_kimi_k3_config(ConfigFile(folder.write("config.json", synth_config_json(preset))));
}

TEST(SynthPresets, ConfigOfK3IsTheReleasedFileByteForByte) {
  EXPECT_EQ(synth_config_json(find_synth_preset("k3")),
            text_of(K3_SOURCE_DIR "/tests/golden/kimi-k3-config.json"));
}

TEST(SynthPresets, GenerationConfigOfK3HasTheReleasedBytes) {
  EXPECT_EQ(synth_generation_config_json(find_synth_preset("k3")),
            "{\n  \"max_length\": 1048576,\n  \"eos_token_id\": 163586\n}");
}

TEST(SynthPresets, NanoIsTheBundledModel) {
  const ConfigFile bundled(K3_SOURCE_DIR "/examples/nano/checkpoint/config.json");
  EXPECT_EQ(read_kimi_k3_config(bundled), find_synth_preset("nano").config);
}

TEST(SynthPresets, ConfigsReadBackAsThePresetAtAnyNumberOfLayers) {
  for (const SynthPreset& preset : synth_presets()) {
    if (preset.family != SynthFamily::kKimiK3) continue;
    for (const size_t layers : {size_t{1}, size_t{4}, preset.config.layers.size()}) {
      const SynthPreset shorter = with_layers(preset, static_cast<int64_t>(layers));
      EXPECT_EQ(shorter.config.layers.size(), layers);
      EXPECT_EQ(config_as_read(shorter), shorter.config) << preset.name << ' ' << layers;
    }
  }
}

TEST(SynthPresets, KimiLinearHasAFlatConfigOfItsOwn) {
  const TempFolder folder;
  const std::string text = synth_config_json(find_synth_preset("kimi-linear"));
  const ConfigFile file(folder.write("config.json", text));
  const ConfigObject root = file.root();
  EXPECT_FALSE(root.has("text_config"));
  EXPECT_FALSE(root.has("q_lora_rank"));  // null
  EXPECT_EQ(root.size("hidden_size"), 2304);
  EXPECT_EQ(root.number("routed_scaling_factor"), 2.446);
  const ConfigObject linear = root.object("linear_attn_config");
  EXPECT_FALSE(linear.has("gate_lower_bound"));
  EXPECT_EQ(linear.integers("full_attn_layers"), (std::vector<int64_t>{4, 8, 12, 16, 20, 24, 27}));
  EXPECT_EQ(linear.integers("kda_layers").size(), 20u);
}

TEST(SynthPresets, OddHasNoTwoEqualWidthsAndNoMultipleOf160) {
  const ModelConfig& config = find_synth_preset("odd").config;
  std::set<int64_t> sizes = {config.qk_content_dim, config.qk_extra_dim, config.v_head_dim,
                             config.qk_head_dim(), config.mla_heads};
  size_t count = sizes.size();
  ASSERT_EQ(count, 5u);
  for (auto width = Width::kHidden; width <= Width::kInnerScales;
       width = static_cast<Width>(static_cast<int>(width) + 1)) {
    if (width == Width::kKdaHeadsPadded || width == Width::kKdaGateRank) continue;
    const int64_t size = model_shape({width}, config)[0];
    sizes.insert(size);
    EXPECT_EQ(sizes.size(), ++count) << "width " << static_cast<int>(width) << " is " << size;
    EXPECT_NE(size % 160, 0) << size;
  }
}

TEST(SynthPresets, OddHasTheShapesThatNanoLacks) {
  const SynthPreset& odd = find_synth_preset("odd");
  const ModelConfig& config = odd.config;
  const auto layers = static_cast<int64_t>(config.layers.size());
  const auto kind = [&config](int64_t from_end) {
    return config.layers[config.layers.size() - static_cast<size_t>(from_end)].attention;
  };
  EXPECT_EQ(kind(3), AttentionKind::kKda);
  EXPECT_EQ(kind(2), AttentionKind::kMla);
  EXPECT_EQ(kind(1), AttentionKind::kMla);
  EXPECT_EQ(config.experts, 897);
  EXPECT_GT(config.expert_intermediate_size, 256);      // more than one band,
  EXPECT_NE(config.expert_intermediate_size % 256, 0);  // the last one not whole
  EXPECT_NE(2 * *config.latent_size, config.hidden_size);
  EXPECT_NE(layers % *config.attention_residual_block, 0);
  EXPECT_GT(odd.a_log_entries, config.kda_heads);
}

TEST(SynthPresets, UnknownNamesAndImpossibleLayersAreRefused) {
  EXPECT_EQ(
      thrown_message([] { find_synth_preset("k4"); }),
      "preset k4: unknown, expected one of k3, kimi-linear, nano, mid, odd, kimi-linear-nano");
  const SynthPreset& nano = find_synth_preset("nano");
  EXPECT_EQ(thrown_message([&] { with_layers(nano, 9); }),
            "layers: is 9, expected 1 to 8 for the preset nano");
  EXPECT_NE(thrown_message([&] { with_layers(nano, 0); }), "no error");
}

}  // namespace
}  // namespace k3
