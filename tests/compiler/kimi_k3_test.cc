#include "compiler/kimi_k3.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/families.h"
#include "tests/compiler/checkpoint_folder.h"
#include "tests/compiler/nano_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::kNano;
using test::message_of;
using test::TestTensor;

class Nano : public test::NanoFolder {};

TEST(KimiK3, NanoIsReadWhole) {
  const Checkpoint checkpoint(kNano);
  const Model model = import_model(checkpoint);
  EXPECT_EQ(model.family, "kimi-k3");
  EXPECT_EQ(model.source_prefix, "language_model.");
  EXPECT_EQ(model.shards.size(), 9u);
  EXPECT_EQ(model.trunk.size(), 212u);
  ASSERT_EQ(model.banks.size(), 7u);
  EXPECT_EQ(model.banks.front().layer, 1);
  EXPECT_EQ(model.banks.back().layer, 7);
}

TEST(KimiK3, TheTrunkIsInLayerOrderThenNameOrderWithTheGlobalTensorsLast) {
  const Model model = import_model(Checkpoint(kNano));
  std::vector<std::string> names;
  for (const TrunkTensor& tensor : model.trunk) names.push_back(tensor.name);
  EXPECT_EQ(names.front(), "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(names[22], "model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(names[23], "model.layers.1.block_sparse_moe.gate.e_score_correction_bias");
  EXPECT_EQ(std::vector(names.end() - 5, names.end()),
            (std::vector<std::string>{"lm_head.weight", "model.embed_tokens.weight",
                                      "model.norm.weight", "model.output_attn_res_norm.weight",
                                      "model.output_attn_res_proj.weight"}));
}

TEST(KimiK3, OnlyMatricesWithMeasuredErrorMayBeQuantized) {
  std::set<std::string> kinds;
  for (const TrunkTensor& tensor : import_model(Checkpoint(kNano)).trunk) {
    EXPECT_EQ(tensor.format, tensor.dtype == Dtype::kF32 ? Format::kF32 : Format::kBf16);
    if (!tensor.may_quantize) continue;
    EXPECT_EQ(tensor.dtype, Dtype::kBf16) << tensor.name;
    EXPECT_EQ(tensor.shape.rank(), 2) << tensor.name;
    kinds.insert(tensor.name.substr(std::string("model.layers.N.").size()));
  }
  EXPECT_EQ(kinds,
            (std::set<std::string>{
                "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                "self_attn.g_proj.weight", "self_attn.o_proj.weight", "self_attn.q_a_proj.weight",
                "self_attn.q_b_proj.weight", "self_attn.kv_a_proj_with_mqa.weight",
                "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
                "block_sparse_moe.routed_expert_down_proj.weight",
                "block_sparse_moe.routed_expert_up_proj.weight",
                "block_sparse_moe.shared_experts.gate_proj.weight",
                "block_sparse_moe.shared_experts.up_proj.weight",
                "block_sparse_moe.shared_experts.down_proj.weight"}));
}

TEST(KimiK3, AnExpertsSourcesAreInTheCheckpointsOrder) {
  const Checkpoint checkpoint(kNano);
  const Model model = import_model(checkpoint);
  const Bank& bank = model.banks[4];
  EXPECT_EQ(bank.source_format, Format::kMxfp4);
  EXPECT_EQ(bank.source_experts, 64);
  const Expert& expert = bank.experts[37];
  EXPECT_EQ(expert.source_id, 37);
  size_t i = 0;
  for (const char* part : {"w1.weight_packed", "w1.weight_scale", "w2.weight_packed",
                           "w2.weight_scale", "w3.weight_packed", "w3.weight_scale"}) {
    const auto tensor = checkpoint.find(
        std::string("language_model.model.layers.5.block_sparse_moe.experts.37.") + part);
    ASSERT_TRUE(tensor);
    EXPECT_EQ(expert.sources[i].shard, tensor->source.shard);
    EXPECT_EQ(expert.sources[i].offset_bytes, tensor->source.offset_bytes);
    EXPECT_EQ(expert.sources[i].length_bytes, tensor->source.length_bytes);
    ++i;
  }
}

TEST(KimiK3, SideFilesAreCarriedAsTheyAre) {
  const Model model = import_model(Checkpoint(kNano));
  ASSERT_EQ(model.side_files.size(), 4u);
  for (const SideFile& file : model.side_files) {
    const std::string text = test::read_text(kNano + "/" + file.name);
    ASSERT_EQ(file.bytes.size(), text.size()) << file.name;
    EXPECT_EQ(std::memcmp(file.bytes.data(), text.data(), text.size()), 0) << file.name;
  }
}

TEST_F(Nano, TheTokenizerIsRequiredAndGenerationConfigIsNot) {
  EXPECT_EQ(import(*tensors_).side_files.size(), 3u);
  std::filesystem::remove(folder_.file("tiktoken.model"));
  EXPECT_TRUE(contains(message(*tensors_), "tiktoken.model: cannot open"));
}

TEST_F(Nano, EachMissingTensorOfTheTrunkIsNamed) {
  for (size_t i = 0; i < tensors_->size(); ++i) {
    const std::string& name = (*tensors_)[i].name;
    const bool of_expert = name.find(".experts.") != std::string::npos;
    if (of_expert && i % 97 != 0) continue;
    std::vector<TestTensor> tensors = *tensors_;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    const std::string text = message(tensors);
    EXPECT_TRUE(contains(text, folder_.path() + ": tensor " + name + ": missing, expected "));
    EXPECT_FALSE(contains(text, "more problem")) << text;
  }
}

TEST_F(Nano, EachTensorOfAnotherShapeOrTypeIsNamed) {
  for (size_t i = 0; i < tensors_->size(); i += i % 7 == 0 ? 5 : 13) {
    const TestTensor original = (*tensors_)[i];
    std::vector<TestTensor> tensors = *tensors_;
    if (original.name.ends_with("A_log")) continue;
    ++tensors[i].shape.back();
    std::string text = message(tensors);
    EXPECT_TRUE(contains(text, "model.safetensors: tensor " + original.name + ": is "));
    EXPECT_TRUE(contains(text, ", expected "));
    tensors[i] = original;
    tensors[i].shape.push_back(1);
    EXPECT_TRUE(contains(message(tensors), "tensor " + original.name + ": is "));
    tensors[i] = original;
    tensors[i].dtype = original.dtype == Dtype::kF32 ? Dtype::kBf16 : Dtype::kF32;
    text = message(tensors);
    EXPECT_TRUE(contains(text, "tensor " + original.name + ": is "));
    EXPECT_TRUE(contains(text, "expected " + std::string(dtype_name(original.dtype))));
  }
}

TEST_F(Nano, ASurplusTensorIsNamed) {
  for (const char* name :
       {"language_model.model.layers.8.input_layernorm.weight",
        "language_model.model.layers.1.self_attn.q_proj.bias",
        "language_model.model.layers.1.block_sparse_moe.experts.64.w1.weight_packed",
        "model.norm.weight", "stray", "line\\nbreak"}) {
    std::vector<TestTensor> tensors = *tensors_;
    tensors.push_back({name, Dtype::kBf16, {1, 2}});
    std::string shown = name;
    if (shown == "line\\nbreak") shown = "line\\x0abreak";
    EXPECT_EQ(message(tensors), folder_.file("model.safetensors") + ": tensor " + shown +
                                    ": is BF16 [1, 2], this model has no tensor of that name");
  }
}

TEST_F(Nano, TheFirstProblemIsReportedWithTheNumberOfTheOthers) {
  std::vector<TestTensor> tensors = *tensors_;
  for (TestTensor& tensor : tensors) {
    if (tensor.name.ends_with(".self_attn.o_norm.weight")) tensor.dtype = Dtype::kBf16;
  }
  EXPECT_TRUE(contains(message(tensors),
                       "layers.0.self_attn.o_norm.weight: is BF16 [64], expected F32 [64] (and 5 "
                       "more problems)"));
}

TEST_F(Nano, VisionAndProjectorAreCountedAndLeftOut) {
  std::vector<TestTensor> tensors = *tensors_;
  tensors.push_back({"vision_tower.a", Dtype::kBf16, {3, 5}});
  tensors.push_back({"vision_tower.b", Dtype::kF32, {2}});
  tensors.push_back({"mm_projector.c", Dtype::kBf16, {7}});
  const Model model = import(tensors);
  ASSERT_EQ(model.dropped.size(), 3u);
  EXPECT_EQ(model.dropped[0].family, Family::kVision);
  EXPECT_EQ(model.dropped[0].tensors, 2);
  EXPECT_EQ(model.dropped[0].parameters, 17);
  EXPECT_EQ(model.dropped[0].bytes, 38);
  EXPECT_EQ(model.dropped[1].family, Family::kProjector);
  EXPECT_EQ(model.dropped[1].bytes, 14);
}

TEST_F(Nano, ALogIsCutToItsHeadsAndTheRestCounted) {
  const Model model = import(*tensors_);
  const auto at = std::find_if(model.trunk.begin(), model.trunk.end(), [](const TrunkTensor& t) {
    return t.name == "model.layers.2.self_attn.A_log";
  });
  ASSERT_NE(at, model.trunk.end());
  EXPECT_EQ(at->shape, Shape{4});
  EXPECT_EQ(at->source.length_bytes, 16);
  ASSERT_EQ(model.dropped.size(), 1u);
  EXPECT_EQ(model.dropped[0].family, Family::kKda);
  EXPECT_EQ(model.dropped[0].tensors, 0);
  EXPECT_EQ(model.dropped[0].parameters, 6 * 60);
  EXPECT_EQ(model.dropped[0].bytes, 6 * 60 * 4);
}

TEST_F(Nano, ALogMayHaveAnyLengthFromItsHeadsOn) {
  std::vector<TestTensor> tensors = *tensors_;
  const auto set = [&](std::vector<int64_t> shape) {
    for (TestTensor& tensor : tensors) {
      if (tensor.name.ends_with("A_log")) tensor.shape = shape;
    }
  };
  set({4});
  EXPECT_TRUE(import(tensors).dropped.empty());
  set({5000});
  EXPECT_EQ(import(tensors).dropped[0].parameters, 6 * 4996);
  set({3});
  EXPECT_TRUE(contains(message(tensors), "A_log: is F32 [3], expected F32 [4] or longer"));
  set({1, 4});
  EXPECT_TRUE(contains(message(tensors), "A_log: is F32 [1, 4], expected F32 [4] or longer"));
}

TEST_F(Nano, ALogWithAnythingBehindItsHeadsIsRefused) {
  import(*tensors_);
  const auto tensor =
      Checkpoint(folder_.path()).find("language_model.model.layers.4.self_attn.A_log");
  ASSERT_TRUE(tensor);
  const auto write_byte = [&](int64_t entry, char byte) {
    std::fstream file(folder_.file("model.safetensors"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(tensor->source.offset_bytes + 4 * entry + 3);
    file.put(byte);
  };
  const auto import_again = [&] { return import_model(Checkpoint(folder_.path())); };
  write_byte(3, 1);
  EXPECT_NO_THROW(import_again());
  write_byte(63, 1);
  EXPECT_TRUE(contains(message_of(import_again),
                       "layers.4.self_attn.A_log: entry 63 is not 0, expected zeros behind the 4"));
}

TEST_F(Nano, ATextCheckpointMayLackThePrefixAndTheNestedConfig) {
  std::vector<TestTensor> tensors = *tensors_;
  for (TestTensor& tensor : tensors) tensor.name = tensor.name.substr(15);
  EXPECT_EQ(import(tensors).source_prefix, "");
  EXPECT_EQ(import(tensors).trunk.size(), 212u);
  const size_t at = config_.find("\"text_config\": ") + 15;
  folder_.write("config.json", config_.substr(at, config_.rfind('}') - at));
  EXPECT_EQ(import(tensors).config, import_model(Checkpoint(kNano)).config);
}

TEST_F(Nano, ExpertsStoredInBf16HaveThreeSources) {
  std::vector<TestTensor> tensors;
  for (const TestTensor& tensor : *tensors_) {
    if (tensor.name.ends_with(".weight_scale")) continue;
    tensors.push_back(tensor);
    if (!tensor.name.ends_with(".weight_packed")) continue;
    tensors.back().name.resize(tensor.name.size() - 7);
    tensors.back().dtype = Dtype::kBf16;
    tensors.back().shape[1] *= 2;
  }
  const Model model = import(tensors);
  EXPECT_EQ(model.banks[0].source_format, Format::kBf16);
  EXPECT_EQ(model.banks[0].format, Format::kBf16);
  EXPECT_EQ(model.banks[0].experts[63].sources[2].length_bytes, 64 * 128 * 2);
  EXPECT_EQ(model.banks[0].experts[63].sources[3].length_bytes, 0);
}

TEST_F(Nano, ACheckpointOfNoKnownFamilyIsToldWhatWasLookedFor) {
  folder_.write("config.json", R"({"model_type":"kimi_k3","hidden_size":4})");
  EXPECT_EQ(message({{"stray", Dtype::kU8, {1}}}),
            folder_.path() +
                ": no known model family; looked for kimi-k3: attn_res_block_size or "
                "routed_expert_hidden_size in config.json, or a tensor "
                "output_attn_res_proj.weight; kimi-linear: linear_attn_config in config.json, or a "
                "tensor self_attn.g_b_proj.weight");
}

TEST_F(Nano, TheFamilyIsToldByItsFeaturesWhateverModelTypeSays) {
  std::string text = config_;
  for (const std::string_view name : {"\"kimi_k3\"", "\"kimi_linear\""}) {
    text.replace(text.find(name), name.size(), "\"other\"");
  }
  folder_.write("config.json", text);
  EXPECT_EQ(import(*tensors_).family, "kimi-k3");
}

}  // namespace
}  // namespace k3
