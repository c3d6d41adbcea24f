// The census against the published numbers of Kimi K3, on a checkpoint of the release's size.
#include "compiler/census.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>

#include "compiler/checkpoint.h"
#include "compiler/families.h"
#include "passes/census.h"
#include "tests/compiler/checkpoint_folder.h"
#include "tests/compiler/kimi_k3_folder.h"
#include "tests/compiler/peak_memory.h"

namespace k3 {
namespace {

using test::contains;
using test::message_of;

constexpr Dtype kB = Dtype::kBf16;
constexpr Dtype kU = Dtype::kU8;

TEST(Census, KimiK3HasItsPublishedNumbers) {
  const test::CheckpointFolder folder;
  test::write_kimi_k3(folder);

  const test::PeakMemory memory;
  std::ostringstream text;
  const auto start = std::chrono::steady_clock::now();
  run_census({.path = folder.path()}, text);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const int64_t peak_kilobytes = memory.growth_kilobytes().value_or(0);
  RecordProperty("seconds", std::to_string(elapsed.count()));
  RecordProperty("peak_kilobytes", std::to_string(peak_kilobytes));
  EXPECT_LT(peak_kilobytes, 100'000);
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
