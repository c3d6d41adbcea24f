#include "runtime/named_gain.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/loaded_model.h"
#include "schema/model_tensors.h"
#include "tests/runtime/packs.h"

namespace k3 {
namespace {

class NamedGain : public testing::TestWithParam<const char*> {};

TEST_P(NamedGain, EveryNormIsFoundOnceAndNothingElse) {
  LoadedModel model({.pack_path = test::pack_path(GetParam())});
  std::set<const float**> seen;
  for (const ExpectedTensor& tensor : expected_tensors(model.config())) {
    const float** gain = find_gain(model.weights(), tensor.name);
    if (!tensor.name.ends_with("norm.weight")) {
      EXPECT_EQ(gain, nullptr) << tensor.name;
      continue;
    }
    ASSERT_NE(gain, nullptr) << tensor.name;
    EXPECT_TRUE(seen.insert(gain).second) << tensor.name;
  }
  EXPECT_GT(seen.size(), model.config().layers.size());
}

TEST_P(NamedGain, IsWhatTheForwardPassMultipliesWith) {
  LoadedModel model({.pack_path = test::pack_path(GetParam())});
  const auto logits = [&] {
    SequenceState state(model.config());
    model.forward().run(test::kPrompt, state);
    return state.last_logits;
  };
  const std::vector<float> before = logits();
  for (const ExpectedTensor& tensor : expected_tensors(model.config())) {
    const float** gain = find_gain(model.weights(), tensor.name);
    if (gain == nullptr) continue;
    // Before the first layer there is nothing yet to mix.
    if (tensor.name == "model.layers.0.self_attention_res_norm.weight") continue;
    const float* const old = *gain;
    const std::vector<float> doubled = [&] {
      std::vector<float> values(old, old + tensor.shape[0]);
      for (size_t i = 0; i < values.size(); i += 2) values[i] *= 2;
      return values;
    }();
    *gain = doubled.data();
    EXPECT_NE(logits(), before) << tensor.name;
    *gain = old;
  }
  EXPECT_EQ(logits(), before);
}

TEST(NamedGainOfNano, WhatIsNoNormIsNotFound) {
  LoadedModel model({.pack_path = test::pack_path("nano")});
  for (const char* name :
       {"model.norm", "model.layers.99.input_layernorm.weight",
        "model.layers.x.input_layernorm.weight", "layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_a_layernorm.weight", ""}) {
    EXPECT_EQ(find_gain(model.weights(), name), nullptr) << name;
  }
}

K3_FOR_EVERY_PACK(NamedGain);

}  // namespace
}  // namespace k3
