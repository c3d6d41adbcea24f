// The second family: that its released checkpoint is read whole, that K3's features are refused in
// it, and that dimensions of one may be there or not.
#include "compiler/kimi_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "compiler/families.h"
#include "compiler/synth_config.h"
#include "compiler/synth_presets.h"
#include "passes/census.h"
#include "tests/compiler/checkpoint_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::message_of;
using test::TestTensor;

constexpr Dtype kB = Dtype::kBf16;
constexpr Dtype kF = Dtype::kF32;

// What one checkpoint of this structure holds, from a description of the release of its own.
struct Description {
  int64_t hidden, vocab, dense, kda_heads, head_dim, mla_heads, kv_rank, content, extra, value;
  int64_t experts, inner;
  std::string layers;  // K or M; the first is dense

  std::vector<TestTensor> layer(size_t index) const {
    std::vector<TestTensor> tensors;
    const std::string stem = "model.layers." + std::to_string(index) + ".";
    const auto add = [&](const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
      tensors.push_back({stem + name, dtype, std::move(shape)});
    };
    const auto add_mlp = [&](const std::string& name, int64_t width) {
      add(name + "gate_proj.weight", kB, {width, hidden});
      add(name + "up_proj.weight", kB, {width, hidden});
      add(name + "down_proj.weight", kB, {hidden, width});
    };
    const int64_t kda = kda_heads * head_dim;
    add("input_layernorm.weight", kB, {hidden});
    add("post_attention_layernorm.weight", kB, {hidden});
    if (layers[index] == 'K') {
      for (const std::string& x : {std::string("q"), std::string("k"), std::string("v")}) {
        add("self_attn." + x + "_proj.weight", kB, {kda, hidden});
        add("self_attn." + x + "_conv1d.weight", kB, {kda, 1, 4});
      }
      for (const std::string& x : {std::string("f"), std::string("g")}) {
        add("self_attn." + x + "_a_proj.weight", kB, {head_dim, hidden});
        add("self_attn." + x + "_b_proj.weight", kB, {kda, head_dim});
      }
      add("self_attn.b_proj.weight", kB, {kda_heads, hidden});
      add("self_attn.A_log", kF, {1, 1, kda_heads, 1});
      add("self_attn.dt_bias", kF, {kda});
      add("self_attn.o_norm.weight", kB, {head_dim});
      add("self_attn.o_proj.weight", kB, {hidden, kda});
    } else {
      add("self_attn.q_proj.weight", kB, {mla_heads * (content + extra), hidden});
      add("self_attn.kv_a_proj_with_mqa.weight", kB, {kv_rank + extra, hidden});
      add("self_attn.kv_a_layernorm.weight", kB, {kv_rank});
      add("self_attn.kv_b_proj.weight", kB, {mla_heads * (content + value), kv_rank});
      add("self_attn.o_proj.weight", kB, {hidden, mla_heads * value});
    }
    if (index == 0) {
      add_mlp("mlp.", dense);
      return tensors;
    }
    add("block_sparse_moe.gate.weight", kB, {experts, hidden});
    add("block_sparse_moe.gate.e_score_correction_bias", kB, {experts});
    add_mlp("block_sparse_moe.shared_experts.", inner);
    for (int64_t e = 0; e < experts; ++e) {
      const std::string expert = "block_sparse_moe.experts." + std::to_string(e) + ".";
      add(expert + "w1.weight", kB, {inner, hidden});
      add(expert + "w2.weight", kB, {hidden, inner});
      add(expert + "w3.weight", kB, {inner, hidden});
    }
    return tensors;
  }

  std::vector<TestTensor> all() const {
    std::vector<TestTensor> tensors = {{"model.embed_tokens.weight", kB, {vocab, hidden}},
                                       {"lm_head.weight", kB, {vocab, hidden}},
                                       {"model.norm.weight", kB, {hidden}}};
    for (size_t i = 0; i < layers.size(); ++i) {
      for (TestTensor& tensor : layer(i)) tensors.push_back(std::move(tensor));
    }
    return tensors;
  }
};

const Description kReleased = {
    2304, 163840, 9216, 32, 128, 32, 512, 128, 64, 128, 256, 1024, "KKKMKKKMKKKMKKKMKKKMKKKMKKM"};
const Description kSmall = {148, 941, 309, 5, 36, 3, 58, 25, 11, 31, 21, 267, "KKKMKM"};

class KimiLinear : public testing::Test {
 protected:
  KimiLinear() {
    folder_.write("tiktoken.model", "ranks");
    folder_.write("tokenizer_config.json", "{}");
    write_config("kimi-linear-nano");
  }

  void write_config(const char* preset) {
    config_ = synth_config_json(find_synth_preset(preset));
    folder_.write("config.json", config_);
  }
  Model import(const std::vector<TestTensor>& tensors) const {
    folder_.write_shard("model.safetensors", tensors);
    return import_model(Checkpoint(folder_.path()));
  }
  std::string message(const std::vector<TestTensor>& tensors) const {
    return message_of([&] { import(tensors); });
  }
  std::string message_with(const std::string& from, const std::string& to) const {
    std::string text = config_;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    folder_.write("config.json", text.replace(at, from.size(), to));
    return message(kSmall.all());
  }

  std::string config_;
  test::CheckpointFolder folder_;
};

TEST_F(KimiLinear, TheReleaseIsReadWholeAndCountedToTheByte) {
  write_config("kimi-linear");
  const Model model = import(kReleased.all());
  EXPECT_EQ(model.family, "kimi-linear");
  EXPECT_EQ(model.source_prefix, "");
  EXPECT_TRUE(model.dropped.empty());
  const Census census = take_census(model);
  EXPECT_EQ(census.total.tensors, 20'493);
  EXPECT_EQ(census.total.parameters, 49'122'681'728);
  EXPECT_EQ(census.total.bytes, 98'245'528'576);
  EXPECT_EQ(census.one_expert.parameters, 7'077'888);

  ModelConfig expected;
  expected.hidden_size = 2304;
  expected.vocab_size = 163840;
  expected.layers.assign(27, {AttentionKind::kKda, FfnKind::kMoe});
  expected.layers[0].ffn = FfnKind::kDense;
  for (const size_t layer : {4u, 8u, 12u, 16u, 20u, 24u, 27u}) {
    expected.layers[layer - 1].attention = AttentionKind::kMla;
  }
  expected.rms_norm_epsilon = 1e-5;
  expected.low_rank_norm_epsilon = 1e-5;
  expected.qk_norm_epsilon = 1e-6;
  expected.kda_heads = 32;
  expected.kda_head_dim = 128;
  expected.conv_kernel = 4;
  expected.kda_gate_rank = 128;
  expected.mla_heads = 32;
  expected.kv_lora_rank = 512;
  expected.qk_content_dim = 128;
  expected.qk_extra_dim = 64;
  expected.v_head_dim = 128;
  expected.dense_intermediate_size = 9216;
  expected.activation = Activation::kSilu;
  expected.experts = 256;
  expected.experts_per_token = 8;
  expected.expert_intermediate_size = 1024;
  expected.shared_experts = 1;
  expected.renormalize = true;
  expected.routed_scaling_factor = 2.446;
  expected.bos_token_id = 163584;
  expected.eos_token_id = 163586;
  expected.pad_token_id = 163839;
  EXPECT_EQ(model.config, expected);
}

TEST_F(KimiLinear, ItsBanksAreBf16WithThreeSourcesAnExpert) {
  const Model model = import(kSmall.all());
  ASSERT_EQ(model.banks.size(), 5u);
  EXPECT_EQ(model.banks[0].format, Format::kBf16);
  const Expert& expert = model.banks[2].experts[20];
  const auto w2 =
      Checkpoint(folder_.path()).find("model.layers.3.block_sparse_moe.experts.20.w2.weight");
  EXPECT_EQ(expert.sources[1].offset_bytes, w2->source.offset_bytes);
  EXPECT_EQ(expert.sources[2].length_bytes, 148 * 267 * 2);
  EXPECT_EQ(expert.sources[3].length_bytes, 0);
}

TEST_F(KimiLinear, OnlyMatricesWithMeasuredErrorMayBeQuantized) {
  std::set<std::string> kinds;
  for (const TrunkTensor& tensor : import(kSmall.all()).trunk) {
    if (!tensor.may_quantize) continue;
    kinds.insert(std::regex_replace(tensor.name, std::regex("model.layers.[0-9]+."), ""));
  }
  EXPECT_EQ(kinds,
            (std::set<std::string>{"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                   "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                                   "self_attn.kv_a_proj_with_mqa.weight", "mlp.gate_proj.weight",
                                   "mlp.up_proj.weight", "mlp.down_proj.weight",
                                   "block_sparse_moe.shared_experts.gate_proj.weight",
                                   "block_sparse_moe.shared_experts.up_proj.weight",
                                   "block_sparse_moe.shared_experts.down_proj.weight"}));
}

TEST_F(KimiLinear, DimensionsOfOneMayBeThereOrNot) {
  const auto shape_in_model = [this](const std::string& end, std::vector<int64_t> stored) {
    std::vector<TestTensor> tensors = kSmall.all();
    for (TestTensor& tensor : tensors) {
      if (tensor.name.ends_with(end)) tensor.shape = stored;
    }
    for (const TrunkTensor& tensor : import(tensors).trunk) {
      if (tensor.name == "model.layers.2.self_attn." + end) return tensor.shape;
    }
    return Shape{};
  };
  for (const auto& stored : std::vector<std::vector<int64_t>>{{5}, {1, 5}, {5, 1}, {1, 1, 5, 1}}) {
    EXPECT_EQ(shape_in_model("A_log", stored), Shape{5});
  }
  for (const auto& stored : std::vector<std::vector<int64_t>>{{180, 4}, {180, 1, 4}}) {
    EXPECT_EQ(shape_in_model("k_conv1d.weight", stored), (Shape{180, 1, 4}));
  }
}

TEST_F(KimiLinear, OtherShapesAndTypesAreRefused) {
  const auto with = [this](const std::string& end, Dtype dtype, std::vector<int64_t> shape) {
    std::vector<TestTensor> tensors = kSmall.all();
    for (TestTensor& tensor : tensors) {
      if (tensor.name == "model.layers.0." + end) tensor = {tensor.name, dtype, shape};
    }
    return message(tensors);
  };
  EXPECT_TRUE(
      contains(with("self_attn.A_log", kF, {6}), "A_log: is F32 [6], expected F32 [1, 1, 5, 1]"));
  EXPECT_TRUE(contains(with("self_attn.A_log", kF, {128}), "A_log: is F32 [128], expected"));
  EXPECT_TRUE(contains(with("self_attn.A_log", kB, {5}), "A_log: is BF16 [5], expected F32"));
  EXPECT_TRUE(contains(with("self_attn.q_conv1d.weight", kB, {4, 180}), "is BF16 [4, 180]"));
  EXPECT_TRUE(contains(with("self_attn.q_conv1d.weight", kF, {180, 1, 4}),
                       "is F32 [180, 1, 4], expected BF16"));
  // A matrix has no dimension of one to spare.
  EXPECT_TRUE(contains(with("mlp.up_proj.weight", kB, {309, 148, 1}), "is BF16 [309, 148, 1]"));
}

TEST_F(KimiLinear, MissingAndSurplusTensorsAreNamed) {
  const std::vector<TestTensor> whole = kSmall.all();
  for (size_t i = 0; i < whole.size(); i += 5) {
    std::vector<TestTensor> tensors = whole;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(contains(message(tensors), "tensor " + whole[i].name + ": missing, expected "));
  }
  // K3's, and any vision part.
  for (const char* name :
       {"model.layers.3.self_attn.g_proj.weight", "vision_tower.patch_embed.proj.weight",
        "model.layers.2.block_sparse_moe.routed_expert_norm.weight"}) {
    std::vector<TestTensor> tensors = whole;
    tensors.push_back({name, kB, {7}});
    EXPECT_TRUE(contains(message(tensors), std::string("tensor ") + name + ": is BF16 [7], this"));
  }
}

TEST_F(KimiLinear, FeaturesOfK3AndValuesThatWeWouldRunWrongAreRefused) {
  struct Case {
    std::string from, to, complaint;
  };
  const std::string off = ": is set, this family of models is only implemented without it";
  const std::vector<Case> cases = {
      {"\"linear_attn_config\": {", "\"linear_attn_config\": { \"gate_lower_bound\": -5.0,",
       "linear_attn_config.gate_lower_bound" + off},
      {"\"linear_attn_config\": {", "\"linear_attn_config\": { \"use_full_rank_gate\": true,",
       "linear_attn_config.use_full_rank_gate" + off},
      {"\"q_lora_rank\": null", "\"q_lora_rank\": 96", "q_lora_rank" + off},
      {"\"q_lora_rank\": null", "\"mla_use_output_gate\": true", "mla_use_output_gate" + off},
      {"\"q_lora_rank\": null", "\"latent_moe_use_norm\": true", "latent_moe_use_norm" + off},
      {"\"q_lora_rank\": null", "\"quantization_config\": {}", "quantization_config" + off},
      {"\"q_lora_rank\": null", "\"topk_method\": \"greedy\"", "topk_method: is \"greedy\""},
      {"\"silu\"", "\"situ\"", "hidden_act: is \"situ\", only \"silu\""},
      {"\"mla_use_nope\": true", "\"mla_use_nope\": false", "mla_use_nope: is false"},
      {"\"num_key_value_heads\": 3", "\"num_key_value_heads\": 1", "is 1, only 3"},
      {"\"routed_scaling_factor\": 2.446", "\"routed_scaling_factor\": 0",
       "expected a number above 0"},
  };
  for (const Case& bad : cases) {
    EXPECT_TRUE(contains(message_with(bad.from, bad.to), bad.complaint)) << bad.to;
  }
}

TEST_F(KimiLinear, AFeatureThatIsSwitchedOffCountsAsAbsent) {
  std::string text = config_;
  text.insert(1,
              "\"mla_use_output_gate\": false, \"quantization_config\": null, "
              "\"topk_method\": \"noaux_tc\",");
  folder_.write("config.json", text);
  EXPECT_FALSE(import(kSmall.all()).config.mla_output_gate);
}

// Renames each key of config.json in turn. Either the import names the field, or the field is one
// of those that mean nothing to us.
TEST_F(KimiLinear, EachFieldIsRequiredOrKnownToMeanNothing) {
  std::set<std::string> passed;
  const std::regex key("\"(\\w+)\":");
  const std::vector<TestTensor> tensors = kSmall.all();
  for (std::sregex_iterator at(config_.begin(), config_.end(), key), end; at != end; ++at) {
    const std::string name = (*at)[1];
    std::string text = config_;
    text.insert(static_cast<size_t>(at->position(1)), "not_");
    folder_.write("config.json", text);
    try {
      import(tensors);
      passed.insert(name);
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), name + ": missing, expected"));
    }
  }
  EXPECT_EQ(passed, (std::set<std::string>{
                        "architectures", "auto_map", "AutoConfig", "AutoModel",
                        "AutoModelForCausalLM", "dtype", "head_dim", "initializer_range",
                        "model_max_length", "model_type", "q_lora_rank", "rope_scaling",
                        "rope_theta", "transformers_version", "use_cache", "use_grouped_topk"}));
}

}  // namespace
}  // namespace k3
