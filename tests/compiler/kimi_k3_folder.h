// A checkpoint with the names, types, shapes and shards of Kimi K3's release.
//
// It is written from a description of its own, not from the table the importer uses: every header
// in full, every byte of data a hole in a sparse file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "schema/dtype.h"
#include "tests/compiler/checkpoint_folder.h"

namespace k3::test {

inline std::vector<TestTensor> layer_tensors(int layer) {
  using enum Dtype;
  std::vector<TestTensor> tensors;
  const std::string stem = "language_model.model.layers." + std::to_string(layer) + ".";
  const auto add = [&](const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    tensors.push_back({stem + name, dtype, std::move(shape)});
  };
  for (const char* name :
       {"input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"}) {
    add(std::string(name) + ".weight", kBf16, {7168});
  }
  add("self_attention_res_proj.weight", kBf16, {1, 7168});
  add("mlp_res_proj.weight", kBf16, {1, 7168});
  add("self_attn.g_proj.weight", kBf16, {12288, 7168});
  add("self_attn.o_proj.weight", kBf16, {7168, 12288});
  if (layer % 4 == 3 || layer == 92) {
    add("self_attn.q_a_proj.weight", kBf16, {1536, 7168});
    add("self_attn.q_a_layernorm.weight", kBf16, {1536});
    add("self_attn.q_b_proj.weight", kBf16, {18432, 1536});
    add("self_attn.kv_a_proj_with_mqa.weight", kBf16, {576, 7168});
    add("self_attn.kv_a_layernorm.weight", kBf16, {512});
    add("self_attn.kv_b_proj.weight", kBf16, {24576, 512});
  } else {
    for (const std::string& x : {std::string("q"), std::string("k"), std::string("v")}) {
      add("self_attn." + x + "_proj.weight", kBf16, {12288, 7168});
      add("self_attn." + x + "_conv1d.weight", kF32, {12288, 1, 4});
    }
    add("self_attn.f_a_proj.weight", kBf16, {128, 7168});
    add("self_attn.f_b_proj.weight", kBf16, {12288, 128});
    add("self_attn.b_proj.weight", kBf16, {96, 7168});
    add("self_attn.A_log", kF32, {128});
    add("self_attn.dt_bias", kF32, {12288});
    add("self_attn.o_norm.weight", kF32, {128});
  }
  if (layer == 0) {
    add("mlp.gate_proj.weight", kBf16, {33792, 7168});
    add("mlp.up_proj.weight", kBf16, {33792, 7168});
    add("mlp.down_proj.weight", kBf16, {7168, 33792});
  } else {
    add("block_sparse_moe.gate.weight", kBf16, {896, 7168});
    add("block_sparse_moe.gate.e_score_correction_bias", kF32, {896});
    add("block_sparse_moe.routed_expert_down_proj.weight", kBf16, {3584, 7168});
    add("block_sparse_moe.routed_expert_norm.weight", kBf16, {3584});
    add("block_sparse_moe.routed_expert_up_proj.weight", kBf16, {7168, 3584});
    add("block_sparse_moe.shared_experts.gate_proj.weight", kBf16, {6144, 7168});
    add("block_sparse_moe.shared_experts.up_proj.weight", kBf16, {6144, 7168});
    add("block_sparse_moe.shared_experts.down_proj.weight", kBf16, {7168, 6144});
    for (int e = 0; e < 896; ++e) {
      const std::string expert = "block_sparse_moe.experts." + std::to_string(e) + ".";
      add(expert + "w1.weight_packed", kU8, {3072, 1792});
      add(expert + "w1.weight_scale", kU8, {3072, 112});
      add(expert + "w2.weight_packed", kU8, {3584, 1536});
      add(expert + "w2.weight_scale", kU8, {3584, 96});
      add(expert + "w3.weight_packed", kU8, {3072, 1792});
      add(expert + "w3.weight_scale", kU8, {3072, 112});
    }
  }
  return tensors;
}

inline std::vector<TestTensor> vision_tensors() {
  using enum Dtype;
  std::vector<TestTensor> tensors = {
      {"vision_tower.patch_embed.proj.weight", kBf16, {1024, 3, 14, 14}},
      {"vision_tower.patch_embed.pos_emb.weight", kBf16, {64, 64, 1024}},
      {"vision_tower.encoder.final_layernorm.weight", kBf16, {1024}},
  };
  for (int block = 0; block < 27; ++block) {
    const std::string stem = "vision_tower.encoder.blocks." + std::to_string(block) + ".";
    tensors.push_back({stem + "norm0.weight", kBf16, {1024}});
    tensors.push_back({stem + "norm1.weight", kBf16, {1024}});
    tensors.push_back({stem + "wqkv.weight", kBf16, {4608, 1024}});
    tensors.push_back({stem + "wo.weight", kBf16, {1024, 1536}});
    tensors.push_back({stem + "mlp.fc0.weight", kBf16, {4096, 1024}});
    tensors.push_back({stem + "mlp.fc1.weight", kBf16, {1024, 4096}});
  }
  return tensors;
}

// Shard 1 to 93: a layer each; 94: the global tensors; 95: the projector; 96: the vision tower.
inline std::vector<TestTensor> shard_tensors(int shard) {
  using enum Dtype;
  if (shard <= 93) return layer_tensors(shard - 1);
  if (shard == 96) return vision_tensors();
  if (shard == 95) {
    return {{"mm_projector.proj.0.weight", kBf16, {4096, 4096}},
            {"mm_projector.proj.2.weight", kBf16, {7168, 4096}},
            {"mm_projector.post_norm.weight", kBf16, {7168}}};
  }
  return {{"language_model.lm_head.weight", kBf16, {163840, 7168}},
          {"language_model.model.embed_tokens.weight", kBf16, {163840, 7168}},
          {"language_model.model.norm.weight", kBf16, {7168}},
          {"language_model.model.output_attn_res_norm.weight", kBf16, {7168}},
          {"language_model.model.output_attn_res_proj.weight", kBf16, {1, 7168}}};
}

// A checkpoint of the release's size in `folder`.
inline void write_kimi_k3(const CheckpointFolder& folder) {
  folder.write("config.json", read_text(K3_SOURCE_DIR "/tests/golden/kimi-k3-config.json"));
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

}  // namespace k3::test
