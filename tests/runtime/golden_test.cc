// The forward pass against goldens that a float32 reference computed from the same weights and an
// independent engine that runs the real Kimi K3 confirmed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/dump.h"
#include "runtime/loaded_model.h"
#include "tests/safetensors_file.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

constexpr const char* kPack = K3_BINARY_DIR "/nano.k3pack";
constexpr const char* kGoldens = K3_SOURCE_DIR "/tests/golden/nano/golden.safetensors";
constexpr const char* kFloat64 = K3_SOURCE_DIR "/tests/golden/nano/float64.safetensors";

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::fabs(a[i] - b[i]));
  }
  return largest;
}

// What the model computes for `ids`, all recorded, and what it continues with.
struct Computed {
  explicit Computed(const std::string& backend, const std::vector<int32_t>& ids, int64_t new_tokens)
      : model({.pack_path = kPack, .backend = backend}), state(model.pack().config()) {
    const std::string path = folder.path("dump.safetensors");
    Dump dump(model.pack().config());
    generate(
        model.forward(), state, model.tokenizer(), ids, {.max_new_tokens = 0}, [](auto) {}, &dump);
    dump.write(path, state.ids);
    generation = generate(model.forward(), state, model.tokenizer(), {},
                          {.max_new_tokens = new_tokens}, [](auto) {});
    file = std::make_unique<SafetensorsFile>(path);
  }

  TempFolder folder;
  LoadedModel model;
  SequenceState state;
  Generation generation;
  std::unique_ptr<SafetensorsFile> file;
};

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, ReferenceComputesTheSameStreamLogitsAndRouting) {
  const SafetensorsFile goldens(kGoldens);
  const SafetensorsFile float64(kFloat64);
  const std::string prefix = std::string(GetParam()) + ".";
  const auto ids = goldens.read<int32_t>(prefix + "ids");
  const Computed computed("reference", ids, 24);

  EXPECT_EQ(computed.file->read<int32_t>("ids"), ids);
  const auto logits = computed.file->read<float>("logits");
  EXPECT_LE(largest_difference(logits, goldens.read<float>(prefix + "logits")), 1e-4f);
  EXPECT_LE(largest_difference(logits, float64.read<float>(prefix + "logits")), 1e-5f);
  EXPECT_LE(largest_difference(computed.file->read<float>("hidden"),
                               float64.read<float>(prefix + "hidden")),
            1e-4f);
  EXPECT_EQ(computed.generation.ids, goldens.read<int32_t>(prefix + "greedy24"));

  // The chosen experts are a set: compare them, and their weights, in the order of their ids.
  const auto route_ids = computed.file->read<int32_t>("route_ids");
  const auto route_weights = computed.file->read<float>("route_weights");
  const auto golden_ids = goldens.read<int32_t>(prefix + "route_ids");
  const auto golden_weights = goldens.read<float>(prefix + "route_weights");
  ASSERT_EQ(computed.file->shape("route_ids"), goldens.shape(prefix + "route_ids"));
  const auto k = static_cast<size_t>(goldens.shape(prefix + "route_ids")[2]);
  for (size_t begin = 0; begin < golden_ids.size(); begin += k) {
    std::set<std::pair<int32_t, float>> ours;
    std::set<std::pair<int32_t, float>> theirs;
    for (size_t j = begin; j < begin + k; ++j) {
      ours.emplace(route_ids[j], route_weights[j]);
      theirs.emplace(golden_ids[j], golden_weights[j]);
    }
    ASSERT_EQ(ours.size(), k);
    for (auto our = ours.begin(), their = theirs.begin(); our != ours.end(); ++our, ++their) {
      EXPECT_EQ(our->first, their->first) << "choice " << begin / k;
      EXPECT_NEAR(our->second, their->second, 1e-5f) << "choice " << begin / k;
    }
  }
}

TEST_P(Golden, CpuContinuesWithTheSameTokens) {
  const SafetensorsFile goldens(kGoldens);
  const std::string prefix = std::string(GetParam()) + ".";
  const Computed computed("cpu", goldens.read<int32_t>(prefix + "ids"), 24);
  EXPECT_EQ(computed.generation.ids, goldens.read<int32_t>(prefix + "greedy24"));
  EXPECT_LE(largest_difference(computed.file->read<float>("logits"),
                               goldens.read<float>(prefix + "logits")),
            1e-3f);
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::Values("prose", "lexicon", "code", "single"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace k3
