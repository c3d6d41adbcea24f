#include "compiler/synth_tensors.h"

#include <gtest/gtest.h>

#include <map>

#include "compiler/synth_files.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

int64_t file_bytes_of(const std::vector<SynthTensor>& tensors) {
  auto bytes = static_cast<int64_t>(safetensors_header(tensors).size());
  for (const SynthTensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

// The released files' sizes are public. A name, a shape, a type or the order of tensors that
// differed would change the length of a header.
TEST(SynthTensors, EveryK3FileIsAsLongAsTheReleasedOne) {
  const SynthShards k3(find_synth_preset("k3"));
  ASSERT_EQ(k3.count(), 96);
  const std::map<int64_t, int64_t> released = {
      {1, 2'341'216'112},  {2, 16'990'911'504}, {3, 16'990'911'504}, {4, 16'567'501'776},
      {94, 4'697'664'072}, {95, 92'289'328},    {96, 802'448'352}};
  int64_t all_bytes = 0;
  for (int64_t shard = 0; shard < k3.count(); ++shard) {
    const int64_t bytes = file_bytes_of(k3.tensors(shard));
    if (const auto found = released.find(shard + 1); found != released.end()) {
      EXPECT_EQ(bytes, found->second) << "shard " << shard + 1;
    }
    all_bytes += bytes;
  }
  EXPECT_EQ(all_bytes, 1'560'936'091'448);
  EXPECT_EQ(k3.total_tensors(), 497'220);
  EXPECT_EQ(k3.total_bytes(), 1'560'860'324'864);
}

TEST(SynthTensors, NanoHasTheHeadersOfTheBundledCheckpoint) {
  const SynthShards nano(find_synth_preset("nano"));
  ASSERT_EQ(nano.count(), 9);
  for (int64_t shard = 0; shard < nano.count(); ++shard) {
    const std::string header = safetensors_header(nano.tensors(shard));
    const auto bundled =
        file_bytes(K3_SOURCE_DIR "/examples/nano/checkpoint/" + nano.file_name(shard));
    ASSERT_GE(bundled.size(), header.size());
    const auto begin = reinterpret_cast<const char*>(bundled.data());
    EXPECT_EQ(header, std::string(begin, header.size())) << nano.file_name(shard);
  }
}

TEST(SynthTensors, KimiLinearAddsUpToTheReleasedNumbers) {
  const SynthShards shards(find_synth_preset("kimi-linear"));
  EXPECT_EQ(shards.count(), 20);
  EXPECT_EQ(shards.total_tensors(), 20'493);
  EXPECT_EQ(shards.total_bytes(), 98'245'528'576);
  int64_t parameters = 0;
  for (int64_t shard = 0; shard < shards.count(); ++shard) {
    for (const SynthTensor& tensor : shards.tensors(shard)) {
      parameters += tensor.entries();
      if (tensor.kind == "self_attn.A_log") {
        EXPECT_EQ(tensor.shape, Shape({1, 1, 32, 1}));
      }
    }
  }
  EXPECT_EQ(parameters, 49'122'681'728);
}

TEST(SynthTensors, TheSixTensorsOfAnExpertAreBackToBack) {
  const std::vector<SynthTensor> tensors = SynthShards(find_synth_preset("odd")).tensors(3);
  size_t first = 0;
  while (!tensors[first].name.ends_with("experts.0.w1.weight_packed")) ++first;
  const auto tail = [&](size_t i) {
    const std::string& name = tensors[first + i].name;
    return name.substr(name.find("experts."));
  };
  EXPECT_EQ(tail(1), "experts.0.w1.weight_scale");
  EXPECT_EQ(tail(2), "experts.0.w2.weight_packed");
  EXPECT_EQ(tail(5), "experts.0.w3.weight_scale");
  EXPECT_EQ(tail(6), "experts.1.w1.weight_packed");
  EXPECT_EQ(tail(12), "experts.10.w1.weight_packed");  // as text, not as numbers
}

TEST(SynthTensors, VisitingByNameIsSortedAndAgreesWithTheShards) {
  for (const char* preset : {"nano", "kimi-linear"}) {
    const SynthShards shards(with_layers(find_synth_preset(preset), 3));
    std::map<std::string, int64_t> shard_of;
    for (int64_t shard = 0; shard < shards.count(); ++shard) {
      for (const SynthTensor& tensor : shards.tensors(shard)) shard_of[tensor.name] = shard;
    }
    auto expected = shard_of.begin();
    shards.visit_by_name([&](const std::string& name, int64_t shard) {
      ASSERT_NE(expected, shard_of.end());
      EXPECT_EQ(name, expected->first);
      EXPECT_EQ(shard, expected->second);
      ++expected;
    });
    EXPECT_EQ(expected, shard_of.end());
  }
}

}  // namespace
}  // namespace k3
