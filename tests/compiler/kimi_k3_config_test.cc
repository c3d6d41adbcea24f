#include "compiler/kimi_k3_config.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/compiler/checkpoint_folder.h"
#include "tests/compiler/nano_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::kNano;

class NanoConfig : public test::NanoFolder {};

TEST(KimiK3Config, EachFieldOfNanoIsRead) {
  const ModelConfig config = read_kimi_k3_config(ConfigFile(kNano + "/config.json"));
  ModelConfig expected;
  expected.hidden_size = 256;
  expected.vocab_size = 2048;
  expected.layers.assign(8, {AttentionKind::kKda, FfnKind::kMoe});
  expected.layers[0].ffn = FfnKind::kDense;
  expected.layers[3].attention = AttentionKind::kMla;
  expected.layers[7].attention = AttentionKind::kMla;
  expected.rms_norm_epsilon = 1e-5;
  expected.low_rank_norm_epsilon = 1e-5;
  expected.qk_norm_epsilon = 1e-6;
  expected.kda_heads = 4;
  expected.kda_head_dim = 64;
  expected.conv_kernel = 4;
  expected.decay_lower_bound = -5.0;
  expected.mla_heads = 4;
  expected.q_lora_rank = 96;
  expected.kv_lora_rank = 64;
  expected.qk_content_dim = 32;
  expected.qk_extra_dim = 16;
  expected.v_head_dim = 32;
  expected.mla_output_gate = true;
  expected.dense_intermediate_size = 512;
  expected.activation = Activation::kSitu;
  expected.situ_beta = 4;
  expected.situ_linear_beta = 25;
  expected.experts = 64;
  expected.experts_per_token = 4;
  expected.expert_intermediate_size = 64;
  expected.shared_experts = 2;
  expected.latent_size = 128;
  expected.latent_norm = true;
  expected.renormalize = true;
  expected.routed_scaling_factor = 1;
  expected.attention_residual_block = 3;
  expected.bos_token_id = 2032;
  expected.eos_token_id = 2034;
  expected.pad_token_id = 2047;
  EXPECT_EQ(config, expected);
}

// Renames each key of config.json in turn. Either the import names the field, or the field is one
// of those that mean nothing to us.
TEST_F(NanoConfig, EachFieldIsRequiredOrKnownToMeanNothing) {
  const std::set<std::string> ignored = {"architectures",
                                         "model_type",
                                         "dtype",
                                         "initializer_range",
                                         "max_position_embeddings",
                                         "use_grouped_topk",
                                         "quant_method",
                                         "quantization_status",
                                         "ignore",
                                         "kv_cache_scheme",
                                         "global_compression_ratio",
                                         "input_activations",
                                         "output_activations",
                                         "targets",
                                         "actorder",
                                         "block_structure",
                                         "dynamic",
                                         "observer",
                                         "observer_kwargs",
                                         "zp_dtype"};
  std::set<std::string> passed;
  for (size_t end = config_.find("\":"); end != std::string::npos;
       end = config_.find("\":", end + 1)) {
    const size_t start = config_.rfind('"', end - 1) + 1;
    const std::string name = config_.substr(start, end - start);
    std::string text = config_;
    text.insert(start, "not_");
    folder_.write("config.json", text);
    try {
      import(*tensors_);
      passed.insert(name);
    } catch (const Error& error) {
      // Without text_config the fields are looked for at the top level.
      const std::string complaint =
          name == "text_config" ? "hidden_size: missing, expected" : name + ": missing, expected";
      EXPECT_TRUE(contains(error.what(), complaint));
    }
  }
  EXPECT_EQ(passed.erase("group_0"), 1u);  // config_groups' one member may have any name
  EXPECT_EQ(passed, ignored);
}

TEST_F(NanoConfig, ValuesThatWeWouldRunWrongAreRefused) {
  struct Case {
    std::string from, to, complaint;
    int number = 0;
  };
  const std::vector<Case> cases = {
      {"\"hidden_size\": 256", "\"hidden_size\": 0",
       "text_config.hidden_size: is 0, expected 1 to"},
      {"\"hidden_size\": 256", "\"hidden_size\": -256", "is -256, expected 1 to"},
      {"\"hidden_size\": 256", "\"hidden_size\": 256.0", "is a real number"},
      {"\"hidden_size\": 256", "\"hidden_size\": 1e30", "is a real number"},
      {"\"hidden_size\": 256", "\"hidden_size\": 9007199254740992", "expected 1 to 1048576"},
      {"\"hidden_size\": 256", "\"hidden_size\": \"256\"", "is a string"},
      {"\"hidden_act\": \"situ\"", "\"hidden_act\": \"gelu\"",
       "hidden_act: is \"gelu\", only \"situ\" is implemented"},
      {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true",
       "config.json: tie_word_embeddings: is true, only false", 0},
      {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true",
       "text_config.tie_word_embeddings: is true, only false", 1},
      {"\"num_nextn_predict_layers\": 0", "\"num_nextn_predict_layers\": 1", "only 0 is"},
      {"\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2", "moe_layer_freq: is 2, only 1"},
      {"\"sigmoid\"", "\"softmax\"", "moe_router_activation_func: is \"softmax\""},
      {"\"noaux_tc\"", "\"greedy\"", "topk_method: is \"greedy\""},
      {"\"num_expert_group\": 1", "\"num_expert_group\": 8", "num_expert_group: is 8"},
      {"\"topk_group\": 1", "\"topk_group\": 4", "topk_group: is 4"},
      {"\"num_experts_per_token\": 4", "\"num_experts_per_token\": 65", "is 65, expected 1 to 64"},
      {"\"num_experts_per_token\": 4", "\"num_experts_per_token\": 0", "is 0, expected 1 to 64"},
      {"\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 9", "is 9, expected 0 to 8"},
      {"\"num_key_value_heads\": 4", "\"num_key_value_heads\": 2", "is 2, only 4"},
      {"\"mla_use_nope\": true", "\"mla_use_nope\": false", "mla_use_nope: is false"},
      {"\"use_full_rank_gate\": true", "\"use_full_rank_gate\": false", "is false, only true"},
      {"\"gate_lower_bound\": -5.0", "\"gate_lower_bound\": 5.0", "is not below 0"},
      {"\"gate_lower_bound\": -5.0", "\"gate_lower_bound\": null", "is null, expected a number"},
      {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0.0", "expected a number above 0"},
      {"\"activation_situ_beta\": 4.0", "\"activation_situ_beta\": -4.0",
       "expected a number above"},
      {"\"eos_token_id\": 2034", "\"eos_token_id\": 2033",
       "config.json: eos_token_id: is 2033, text_config has 2034", 0},
      {"\"eos_token_id\": 2034", "\"eos_token_id\": [2034]", "eos_token_id: is a list", 1},
      {"\"pad_token_id\": 2047", "\"pad_token_id\": 2048", "expected 0 to 2047", 1},
      {"\"group_size\": 32", "\"group_size\": 16", "weights.group_size: is 16, only 32"},
      {"\"num_bits\": 4", "\"num_bits\": 8", "num_bits: is 8"},
      {"\"type\": \"float\"", "\"type\": \"int\"", "type: is \"int\""},
      {"\"symmetric\": true", "\"symmetric\": false", "symmetric: is false"},
      {"\"torch.uint8\"", "\"torch.float16\"", "scale_dtype: is \"torch.float16\""},
      {"mxfp4-pack-quantized", "nvfp4-pack-quantized", "group_0.format: is \"nvfp4", 0},
      {"mxfp4-pack-quantized", "nvfp4-pack-quantized", "quantization_config.format: is \"nvfp4", 1},
      {"\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 48",
       "moe_intermediate_size: is 48, expected a multiple of 32"},
      {"\"routed_expert_hidden_size\": 128", "\"routed_expert_hidden_size\": 136",
       "routed_expert_hidden_size: is 136, expected a multiple of 32"},
      // The lists count from 1 and name each layer once.
      {"\"num_hidden_layers\": 8", "\"num_hidden_layers\": 7",
       "full_attn_layers: names layer 8, expected 1 to 7"},
      {"\"num_hidden_layers\": 8", "\"num_hidden_layers\": 9",
       "layer 9 is neither in this list nor in full_attn_layers"},
      {"\"kda_layers\": [\n        1,", "\"kda_layers\": [\n        0,",
       "kda_layers: names layer 0"},
      {"\"kda_layers\": [\n        1,", "\"kda_layers\": [\n        3,",
       "names layer 3, which has been named before"},
      {"\"kda_layers\": [\n        1,", "\"kda_layers\": [\n        4,",
       "full_attn_layers: names layer 4, which has been named before"},
      {"\"kda_layers\": [\n        1,", "\"kda_layers\": [\n        true,", "holds a boolean"},
      // Another width is found in the tensors.
      {"\"hidden_size\": 256", "\"hidden_size\": 128", "BF16 [256], expected BF16 [128] (and "},
      {"\"mla_use_output_gate\": true", "\"mla_use_output_gate\": false",
       "layers.3.self_attn.g_proj.weight: is BF16 [128, 256], this model has no tensor"},
      {"\"num_experts\": 64", "\"num_experts\": 65536", "expected BF16 [65536, 256] (and 7"},
      {"\"num_experts\": 64", "\"num_experts\": 63", "is BF16 [64, 256], expected BF16 [63, 256]"},
  };
  for (const Case& bad : cases) {
    EXPECT_TRUE(contains(message_with(bad.from, bad.to, bad.number), bad.complaint)) << bad.to;
  }
}

}  // namespace
}  // namespace k3
