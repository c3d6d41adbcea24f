#include "passes/census.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

TrunkTensor tensor(Family family, Shape shape, int64_t bytes) {
  TrunkTensor tensor;
  tensor.family = family;
  tensor.shape = shape;
  tensor.source.length_bytes = bytes;
  return tensor;
}

// Two MoE layers of 3 experts [inner 4, latent 2], two experts a token.
Model small_model() {
  Model model;
  model.config.vocab_size = 10;
  model.config.latent_size = 2;
  model.config.expert_intermediate_size = 4;
  model.config.experts = 3;
  model.config.experts_per_token = 2;
  model.trunk = {tensor(Family::kEmbedding, {10, 5}, 100), tensor(Family::kHead, {10, 5}, 100),
                 tensor(Family::kKda, {7}, 14), tensor(Family::kRouter, {3}, 12)};
  Expert expert;
  for (size_t i = 0; i < 6; ++i) expert.sources[i].length_bytes = i % 2 == 0 ? 4 : 1;
  for (int64_t layer = 1; layer <= 2; ++layer) {
    Bank bank;
    bank.layer = layer;
    bank.experts.assign(3, expert);
    model.banks.push_back(bank);
  }
  return model;
}

TEST(Census, ScalesCountAsBytesAndNotAsWeights) {
  const Census census = take_census(small_model());
  EXPECT_EQ(census.one_expert, (CensusCount{6, 24, 15}));
  EXPECT_EQ(census.of(Family::kRoutedExperts), (CensusCount{36, 144, 90}));
  EXPECT_DOUBLE_EQ(census.one_expert.bits_per_weight(), 5.0);
}

TEST(Census, ATokenUsesTheTrunkTheHeadAndItsChosenExperts) {
  const Census census = take_census(small_model());
  EXPECT_EQ(census.active_parameters, 7 + 3 + 50 + 2 * 2 * 24);
  EXPECT_EQ(census.token_bytes.trunk, 26);
  EXPECT_EQ(census.token_bytes.routed_experts, 2 * 2 * 15);
  EXPECT_EQ(census.token_bytes.head, 100);
  EXPECT_EQ(census.token_bytes.embedding, 10);
  EXPECT_EQ(census.token_bytes.total(), 26 + 60 + 100 + 10);
}

TEST(Census, DroppedTensorsCountToTheTotalAndVisionNotToTheToken) {
  Model model = small_model();
  const Census before = take_census(model);
  model.dropped = {{Family::kVision, 2, 30, 60}, {Family::kKda, 0, 4, 16}};
  const Census census = take_census(model);
  EXPECT_EQ(census.vision, (CensusCount{2, 30, 60}));
  EXPECT_EQ(census.total.bytes, before.total.bytes + 76);
  EXPECT_EQ(census.total.tensors, before.total.tensors + 2);
  EXPECT_EQ(census.non_expert.parameters, before.non_expert.parameters + 34);
  EXPECT_EQ(census.trunk, (CensusCount{2, 14, 42}));
  EXPECT_EQ(census.active_parameters, before.active_parameters + 4);
}

TEST(Census, AModelWithoutExpertsHasNone) {
  Model model = small_model();
  model.banks.clear();
  const Census census = take_census(model);
  EXPECT_EQ(census.one_expert, CensusCount{});
  EXPECT_EQ(census.one_expert.bits_per_weight(), 0);
  EXPECT_EQ(census.token_bytes.routed_experts, 0);
}

}  // namespace
}  // namespace k3
