#include "schema/matrix_inputs.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "schema/kimi_k3_release.h"
#include "schema/model_tensors.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

std::vector<SharedInput> all_inputs(const ModelConfig& config) {
  std::vector<SharedInput> all;
  for (int64_t layer = 0; layer <= std::ssize(config.layers); ++layer) {
    for (const SharedInput& input : matrix_inputs(config, layer)) all.push_back(input);
  }
  return all;
}

ModelConfig linear_config() {
  ModelConfig config = tiny_config();
  config.kda_gate_rank = 6;
  config.q_lora_rank.reset();
  config.mla_output_gate = false;
  config.latent_size.reset();
  config.latent_norm = false;
  return config;
}

TEST(MatrixInputs, EveryMatrixOfEveryModelReadsOneInputOfItsWidth) {
  ModelConfig no_shared = tiny_config();
  no_shared.shared_experts = 0;
  for (const ModelConfig& config : {tiny_config(), linear_config(), no_shared, kimi_k3_release()}) {
    std::map<std::string, int64_t> width_of;
    std::set<std::string> names;
    for (const SharedInput& input : all_inputs(config)) {
      EXPECT_TRUE(names.insert(input.name).second) << input.name;
      for (const std::string& matrix : input.matrices) {
        EXPECT_TRUE(width_of.emplace(matrix, input.width).second) << matrix;
      }
    }
    size_t matrices = 0;
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      const bool multiplies =
          tensor.shape.rank() == 2 && tensor.shape[0] > 1 && tensor.family != Family::kEmbedding;
      if (!multiplies) continue;
      ++matrices;
      ASSERT_TRUE(width_of.contains(tensor.name)) << tensor.name;
      EXPECT_EQ(width_of[tensor.name], tensor.shape[1]) << tensor.name;
    }
    EXPECT_EQ(width_of.size(), matrices);
  }
}

TEST(MatrixInputs, OneLayersInputsAreToldApartByKind) {
  const std::vector<SharedInput> inputs = matrix_inputs(kimi_k3_release(), 1);
  ASSERT_EQ(inputs.size(), 6u);
  EXPECT_EQ(inputs[0].name, "layers.1.attention");
  EXPECT_EQ(inputs[0].matrices.size(), 6u);
  EXPECT_EQ(inputs[2].name, "layers.1.attended");
  EXPECT_EQ(inputs[2].width, 12288);
  EXPECT_EQ(matrix_inputs(kimi_k3_release(), 93)[0].matrices.front(), "lm_head.weight");
}

}  // namespace
}  // namespace k3
