// The census against the published numbers of Kimi K3, on a checkpoint of the release's size.
//
// The shards are written here from a description of the release of their own, not from the table
// the importer uses: every header in full, every byte of data a hole in a sparse file.
#include "compiler/census.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/checkpoint.h"
#include "compiler/families.h"
#include "passes/census.h"
#include "tests/compiler/checkpoint_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::message_of;
using test::TestTensor;

constexpr Dtype kB = Dtype::kBf16;
constexpr Dtype kF = Dtype::kF32;
constexpr Dtype kU = Dtype::kU8;

std::vector<TestTensor> layer_tensors(int layer) {
  std::vector<TestTensor> tensors;
  const std::string stem = "language_model.model.layers." + std::to_string(layer) + ".";
  const auto add = [&](const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    tensors.push_back({stem + name, dtype, std::move(shape)});
  };
  for (const char* name :
       {"input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"}) {
    add(std::string(name) + ".weight", kB, {7168});
  }
  add("self_attention_res_proj.weight", kB, {1, 7168});
  add("mlp_res_proj.weight", kB, {1, 7168});
  add("self_attn.g_proj.weight", kB, {12288, 7168});
  add("self_attn.o_proj.weight", kB, {7168, 12288});
  if (layer % 4 == 3 || layer == 92) {
    add("self_attn.q_a_proj.weight", kB, {1536, 7168});
    add("self_attn.q_a_layernorm.weight", kB, {1536});
    add("self_attn.q_b_proj.weight", kB, {18432, 1536});
    add("self_attn.kv_a_proj_with_mqa.weight", kB, {576, 7168});
    add("self_attn.kv_a_layernorm.weight", kB, {512});
    add("self_attn.kv_b_proj.weight", kB, {24576, 512});
  } else {
    for (const std::string& x : {std::string("q"), std::string("k"), std::string("v")}) {
      add("self_attn." + x + "_proj.weight", kB, {12288, 7168});
      add("self_attn." + x + "_conv1d.weight", kF, {12288, 1, 4});
    }
    add("self_attn.f_a_proj.weight", kB, {128, 7168});
    add("self_attn.f_b_proj.weight", kB, {12288, 128});
    add("self_attn.b_proj.weight", kB, {96, 7168});
    add("self_attn.A_log", kF, {128});
    add("self_attn.dt_bias", kF, {12288});
    add("self_attn.o_norm.weight", kF, {128});
  }
  if (layer == 0) {
    add("mlp.gate_proj.weight", kB, {33792, 7168});
    add("mlp.up_proj.weight", kB, {33792, 7168});
    add("mlp.down_proj.weight", kB, {7168, 33792});
  } else {
    add("block_sparse_moe.gate.weight", kB, {896, 7168});
    add("block_sparse_moe.gate.e_score_correction_bias", kF, {896});
    add("block_sparse_moe.routed_expert_down_proj.weight", kB, {3584, 7168});
    add("block_sparse_moe.routed_expert_norm.weight", kB, {3584});
    add("block_sparse_moe.routed_expert_up_proj.weight", kB, {7168, 3584});
    add("block_sparse_moe.shared_experts.gate_proj.weight", kB, {6144, 7168});
    add("block_sparse_moe.shared_experts.up_proj.weight", kB, {6144, 7168});
    add("block_sparse_moe.shared_experts.down_proj.weight", kB, {7168, 6144});
    for (int e = 0; e < 896; ++e) {
      const std::string expert = "block_sparse_moe.experts." + std::to_string(e) + ".";
      add(expert + "w1.weight_packed", kU, {3072, 1792});
      add(expert + "w1.weight_scale", kU, {3072, 112});
      add(expert + "w2.weight_packed", kU, {3584, 1536});
      add(expert + "w2.weight_scale", kU, {3584, 96});
      add(expert + "w3.weight_packed", kU, {3072, 1792});
      add(expert + "w3.weight_scale", kU, {3072, 112});
    }
  }
  return tensors;
}

std::vector<TestTensor> vision_tensors() {
  std::vector<TestTensor> tensors = {
      {"vision_tower.patch_embed.proj.weight", kB, {1024, 3, 14, 14}},
      {"vision_tower.patch_embed.pos_emb.weight", kB, {64, 64, 1024}},
      {"vision_tower.encoder.final_layernorm.weight", kB, {1024}},
  };
  for (int block = 0; block < 27; ++block) {
    const std::string stem = "vision_tower.encoder.blocks." + std::to_string(block) + ".";
    tensors.push_back({stem + "norm0.weight", kB, {1024}});
    tensors.push_back({stem + "norm1.weight", kB, {1024}});
    tensors.push_back({stem + "wqkv.weight", kB, {4608, 1024}});
    tensors.push_back({stem + "wo.weight", kB, {1024, 1536}});
    tensors.push_back({stem + "mlp.fc0.weight", kB, {4096, 1024}});
    tensors.push_back({stem + "mlp.fc1.weight", kB, {1024, 4096}});
  }
  return tensors;
}

// Shard 1 to 93: a layer each; 94: the global tensors; 95: the projector; 96: the vision tower.
std::vector<TestTensor> shard_tensors(int shard) {
  if (shard <= 93) return layer_tensors(shard - 1);
  if (shard == 96) return vision_tensors();
  if (shard == 95) {
    return {{"mm_projector.proj.0.weight", kB, {4096, 4096}},
            {"mm_projector.proj.2.weight", kB, {7168, 4096}},
            {"mm_projector.post_norm.weight", kB, {7168}}};
  }
  return {{"language_model.lm_head.weight", kB, {163840, 7168}},
          {"language_model.model.embed_tokens.weight", kB, {163840, 7168}},
          {"language_model.model.norm.weight", kB, {7168}},
          {"language_model.model.output_attn_res_norm.weight", kB, {7168}},
          {"language_model.model.output_attn_res_proj.weight", kB, {1, 7168}}};
}

void write_kimi_k3(const test::CheckpointFolder& folder) {
  folder.write("config.json", test::read_text(K3_SOURCE_DIR "/tests/golden/kimi-k3-config.json"));
  folder.write("tiktoken.model", "");
  folder.write("tokenizer_config.json", "{}");
  std::ofstream index(folder.file("model.safetensors.index.json"), std::ios::binary);
  index << "{\n  \"metadata\": {\n    \"total_size\": 1560860324864\n  },\n  \"weight_map\": {";
  for (int shard = 1; shard <= 96; ++shard) {
    std::string name = std::to_string(shard);
    name = "model-" + std::string(5 - name.size(), '0') + name + "-of-000096.safetensors";
    std::vector<TestTensor> tensors = shard_tensors(shard);
    std::sort(tensors.begin(), tensors.end(),
              [](const TestTensor& a, const TestTensor& b) { return a.name < b.name; });
    folder.write_shard(name, tensors);
    for (const TestTensor& tensor : tensors) {
      index << (&tensor == &tensors.front() && shard == 1 ? "\n    \"" : ",\n    \"") << tensor.name
            << "\": \"" << name << '"';
    }
  }
  index << "\n  }\n}\n";
}

// Kilobytes of a line of /proc/self/status; 0 where there is no such file.
int64_t status_kilobytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoll(line.substr(field.size() + 1));
  }
  return 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsOurs = false;
#else
constexpr bool kMemoryIsOurs = true;
#endif

TEST(Census, KimiK3HasItsPublishedNumbers) {
  const test::CheckpointFolder folder;
  write_kimi_k3(folder);

  // Writing 5 restarts the kernel's record of the peak.
  ::malloc_trim(0);
  const bool measured =
      kMemoryIsOurs && (std::ofstream("/proc/self/clear_refs") << 5).flush().good();
  const int64_t before = status_kilobytes("VmHWM:");
  std::ostringstream text;
  const auto start = std::chrono::steady_clock::now();
  run_census({.path = folder.path()}, text);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const int64_t peak_kilobytes = status_kilobytes("VmHWM:") - before;
  RecordProperty("seconds", std::to_string(elapsed.count()));
  RecordProperty("peak_kilobytes", std::to_string(peak_kilobytes));
  if (measured) {
    EXPECT_LT(peak_kilobytes, 100'000);
  }
  EXPECT_TRUE(contains(text.str(), "kimi-k3, 497,220 tensors in 96 shards, 1.56 TB"));
  EXPECT_TRUE(contains(text.str(), "69 KDA, 24 MLA; 1 with a dense FFN, 92 with experts"));
  EXPECT_TRUE(contains(text.str(), "AttnRes   8 blocks of 12 layers"));
  EXPECT_TRUE(contains(text.str(), "latent: 7,168 -> 3,584, inner 3,072"));
  EXPECT_TRUE(contains(text.str(), "104,189,614,848 parameters"));
  EXPECT_TRUE(contains(text.str(), "26.68 stored for each one used"));

  const Model model = import_model(Checkpoint(folder.path()));
  const Census census = take_census(model);
  EXPECT_EQ(census.total, (CensusCount{497'220, 2'779'931'837'184, 1'560'860'324'864}));
  EXPECT_EQ(census.of(Family::kRoutedExperts),
            (CensusCount{494'592, 2'722'740'830'208, 1'446'456'066'048}));
  EXPECT_EQ(census.non_expert.parameters, 57'191'006'976);
  EXPECT_EQ(census.of(Family::kVision), (CensusCount{165, 401'214'464, 802'428'928}));
  EXPECT_EQ(census.of(Family::kProjector), (CensusCount{3, 46'144'512, 92'289'024}));
  EXPECT_EQ(census.of(Family::kKda), (CensusCount{966, 30'618'088'704, 61'258'257'408}));
  EXPECT_EQ(census.of(Family::kMla), (CensusCount{192, 5'572'706'304, 11'145'412'608}));
  EXPECT_EQ(census.of(Family::kDenseFfn), (CensusCount{3, 726'663'168, 1'453'326'336}));
  EXPECT_EQ(census.of(Family::kRouter), (CensusCount{184, 590'955'008, 1'182'074'880}));
  EXPECT_EQ(census.of(Family::kLatent), (CensusCount{276, 4'727'310'336, 9'454'620'672}));
  EXPECT_EQ(census.of(Family::kSharedExperts), (CensusCount{276, 12'155'092'992, 24'310'185'984}));
  EXPECT_EQ(census.of(Family::kEmbedding), (CensusCount{1, 1'174'405'120, 2'348'810'240}));
  EXPECT_EQ(census.of(Family::kHead), (CensusCount{1, 1'174'405'120, 2'348'810'240}));
  EXPECT_EQ(census.trunk.parameters, 54'394'837'760);
  EXPECT_EQ(census.trunk.bytes, 108'811'920'384);
  EXPECT_EQ(census.one_expert, (CensusCount{6, 33'030'144, 17'547'264}));
  EXPECT_EQ(census.active_parameters, 104'189'614'848);
  EXPECT_EQ(census.token_bytes.routed_experts, 25'829'572'608);
  EXPECT_EQ(census.token_bytes.embedding, 14'336);
  EXPECT_EQ(model.config.experts_per_token, 16);
}

TEST(Census, NanoReadsAsATable) {
  std::ostringstream text;
  run_census({.path = K3_SOURCE_DIR "/examples/nano/checkpoint"}, text);
  EXPECT_TRUE(contains(text.str(), "2,900 tensors in 9 shards, 16.29 MB"));
  EXPECT_TRUE(contains(text.str(), "= total                  2,900          16,208,512"));
  EXPECT_TRUE(contains(text.str(), "kKKMKKKM  (K KDA, M MLA; lower case: dense FFN)"));
  EXPECT_TRUE(contains(text.str(), "one has 24,576 parameters in 13,056 bytes, mxfp4"));
}

TEST(Census, JsonHoldsTheSameNumbers) {
  std::ostringstream text;
  run_census({.path = K3_SOURCE_DIR "/examples/nano/checkpoint", .json = true}, text);
  EXPECT_TRUE(contains(text.str(), "\"family\": \"kimi-k3\""));
  EXPECT_TRUE(contains(text.str(), "\"parameters\": 16208512"));
  EXPECT_TRUE(contains(text.str(), "\"active_parameters\": 5362304"));
  EXPECT_TRUE(contains(text.str(), "\"layer_map\": \"kKKMKKKM\""));
}

TEST(Census, OneShardGivesItsInventoryWithoutAnyConfig) {
  const test::CheckpointFolder folder;
  folder.write_shard("part.safetensors", {{"a", kU, {2, 3}}, {"b\\n", kB, {1000}}});
  std::ostringstream text;
  run_census({.path = folder.file("part.safetensors")}, text);
  EXPECT_TRUE(contains(text.str(), "a  U8 [2, 3]  6 bytes at "));
  EXPECT_TRUE(contains(text.str(), "b\\x0a  BF16 [1000]  2,000 bytes at "));
  EXPECT_TRUE(contains(text.str(), "1 tensors, 1,000 elements, 2,000 bytes"));
  std::ostringstream json;
  run_census({.path = folder.file("part.safetensors"), .json = true}, json);
  EXPECT_TRUE(contains(json.str(), "\"length_bytes\": 2000"));
}

TEST(Census, ABadCheckpointIsNotCounted) {
  std::ostringstream text;
  EXPECT_TRUE(contains(message_of([&] { run_census({.path = "/none"}, text); }), "/none/config"));
  EXPECT_EQ(text.str(), "");
}

}  // namespace
}  // namespace k3
