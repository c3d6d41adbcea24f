// What must hold of a forward pass on every pack: the exact numerics stay near the reference,
// chunks do not show, fewer layers are the same layers, and memory is what the compiler predicts.

#include "runtime/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/dump.h"
#include "runtime/loaded_model.h"
#include "schema/error.h"
#include "schema/memory_need.h"
#include "tests/runtime/packs.h"
#include "tests/safetensors_file.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

using test::kPrompt;

class ForwardPass : public testing::TestWithParam<const char*> {
 protected:
  LoadOptions options(const std::string& backend = "cpu") const {
    return {.pack_path = test::pack_path(GetParam()), .backend = backend};
  }

  // Everything that passes by while kPrompt does.
  static SafetensorsFile dumped(LoadedModel& model, const TempFolder& folder) {
    Dump dump(model.config());
    SequenceState state(model.config());
    generate(
        model.forward(), state, model.tokenizer(), kPrompt, {.max_new_tokens = 0}, [](auto) {},
        &dump);
    const std::string path = folder.path(std::string(model.backend().name()) + ".safetensors");
    dump.write(path, state.ids);
    return SafetensorsFile(path);
  }

  static double root_mean_square(const std::vector<float>& values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return std::sqrt(sum / static_cast<double>(values.size()));
  }
};

// Activations as int16 leave about 1e-4 of a product's size; they feed the experts of nano and odd,
// every matrix of odd_int8 and nothing of linear.
double largest_relative_difference(const std::string& pack) {
  if (pack == "linear") return 1e-5;
  return pack == "odd_int8" ? 2e-3 : 3e-4;
}

TEST_P(ForwardPass, CpuStaysNearTheReference) {
  const TempFolder folder;
  LoadedModel cpu(options("cpu"));
  LoadedModel reference(options("reference"));
  const SafetensorsFile got = dumped(cpu, folder);
  const SafetensorsFile want = dumped(reference, folder);
  EXPECT_EQ(got.read<int32_t>("route_ids"), want.read<int32_t>("route_ids"));
  for (const char* name : {"logits", "hidden", "route_weights"}) {
    std::vector<float> difference = got.read<float>(name);
    const std::vector<float> expected = want.read<float>(name);
    ASSERT_EQ(difference.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) difference[i] -= expected[i];
    EXPECT_LE(root_mean_square(difference),
              largest_relative_difference(GetParam()) * root_mean_square(expected))
        << name;
  }
}

TEST_P(ForwardPass, ADumpHasTheModelsShapes) {
  const TempFolder folder;
  LoadedModel model(options());
  const ModelConfig& config = model.config();
  const SafetensorsFile file = dumped(model, folder);
  const auto positions = std::ssize(kPrompt);
  const auto mixtures = static_cast<int64_t>(model.pack().index().content.banks.size());
  EXPECT_EQ(file.shape("ids"), Shape{positions});
  EXPECT_EQ(file.shape("logits"), (Shape{positions, config.vocab_size}));
  EXPECT_EQ(file.shape("hidden"),
            (Shape{std::ssize(config.layers), positions, config.hidden_size}));
  EXPECT_EQ(file.shape("route_ids"), (Shape{mixtures, positions, config.experts_per_token}));
  EXPECT_EQ(file.shape("route_weights"), (Shape{mixtures, positions, config.experts_per_token}));
  for (const int32_t id : file.read<int32_t>("route_ids")) {
    ASSERT_GE(id, 0);
    ASSERT_LT(id, config.experts);
  }
}

TEST_P(ForwardPass, RoutingWeightsAddUpToTheScalingFactor) {
  const TempFolder folder;
  LoadedModel model(options());
  const std::vector<float> weights = dumped(model, folder).read<float>("route_weights");
  const auto k = static_cast<size_t>(model.config().experts_per_token);
  for (size_t begin = 0; begin < weights.size(); begin += k) {
    double sum = 0;
    for (size_t j = begin; j < begin + k; ++j) sum += weights[j];
    EXPECT_NEAR(sum, model.config().routed_scaling_factor, 1e-6);
  }
}

TEST_P(ForwardPass, GeneratesTheSameTokensInChunksOfAnySize) {
  std::vector<std::vector<int32_t>> runs;
  for (const int64_t chunk_tokens : {1, 4, 64}) {
    LoadOptions load = options();
    load.chunk_tokens = chunk_tokens;
    LoadedModel model(load);
    SequenceState state(model.config());
    const GenerateOptions generation{.max_new_tokens = 12,
                                     .sampling = {.temperature = 1, .top_p = 0.9, .seed = 4}};
    runs.push_back(
        generate(model.forward(), state, model.tokenizer(), kPrompt, generation, [](auto) {}).ids);
    EXPECT_EQ(runs.back(), runs.front()) << "chunks of " << chunk_tokens;
  }
  EXPECT_EQ(runs.front().size(), 12u);
}

TEST_P(ForwardPass, TheFirstLayersAloneAreTheFirstLayersOfAll) {
  const TempFolder folder;
  const TempFolder other;
  LoadedModel all(options());
  const std::vector<float> hidden = dumped(all, folder).read<float>("hidden");
  const auto most = std::ssize(all.config().layers);
  int64_t smaller = 0;
  for (int64_t layers = 1; layers <= most; ++layers) {
    LoadOptions load = options();
    load.layers = layers;
    LoadedModel model(load);
    ASSERT_EQ(std::ssize(model.config().layers), layers);
    const std::vector<float> first = dumped(model, other).read<float>("hidden");
    EXPECT_TRUE(std::equal(first.begin(), first.end(), hidden.begin())) << layers << " layers";
    EXPECT_GT(model.weights().resident_bytes(), smaller);
    smaller = model.weights().resident_bytes();
    // Experts of layers that do not run are not read.
    int64_t expert_bytes = 0;
    for (const PackBank& bank : model.pack().index().content.banks) {
      if (bank.layer >= layers) continue;
      for (const PackExpert& expert : bank.experts) expert_bytes += expert.extent.length_bytes;
    }
    EXPECT_EQ(model.experts().statistics().bytes_read, expert_bytes);
  }
  EXPECT_EQ(smaller, all.weights().resident_bytes());
}

TEST_P(ForwardPass, OnlyLayersThatAreThereCanRun) {
  for (const int64_t layers : {int64_t{0}, int64_t{-1}, int64_t{9}}) {
    LoadOptions load = options();
    load.layers = layers;
    EXPECT_NE(thrown_message([&] {
                LoadedModel model(load);
              }).find("--layers is " + std::to_string(layers) + ", expected 1 to "),
              std::string::npos);
  }
}

TEST_P(ForwardPass, MemoryIsWhatTheIndexPredicts) {
  LoadedModel model(options());
  const MemoryNeed need = memory_need(model.pack().index().content);
  EXPECT_EQ(model.weights().resident_bytes(), need.weights_bytes);
  EXPECT_EQ(std::ssize(model.experts().memory()), need.all_expert_bytes);
  SequenceState state(model.config());
  const auto state_bytes = [&state] {
    size_t floats = 0;
    for (const LayerState& layer : state.layers) {
      floats += layer.q_window.size() + layer.k_window.size() + layer.v_window.size() +
                layer.kda.size() + layer.cache.size();
    }
    return static_cast<int64_t>(floats * sizeof(float));
  };
  EXPECT_EQ(state_bytes(), need.state_bytes);
  model.forward().run(kPrompt, state);
  EXPECT_EQ(state_bytes(), need.state_bytes + std::ssize(kPrompt) * need.position_bytes);
}

K3_FOR_EVERY_PACK(ForwardPass);

}  // namespace
}  // namespace k3
