#include "compiler/synth.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <sstream>

#include "compiler/checkpoint.h"
#include "compiler/compile.h"
#include "compiler/families.h"
#include "compiler/synth_files.h"
#include "passes/census.h"
#include "runtime/loaded_model.h"
#include "schema/hash.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

SynthOptions options_for(const std::string& out, const std::string& preset) {
  SynthOptions options;
  options.out = out;
  options.preset = preset;
  options.quiet = true;
  return options;
}

std::string synth(const SynthOptions& options) {
  std::ostringstream out;
  run_synth(options, out);
  return out.str();
}

// The hash of every file by name.
std::map<std::string, uint64_t> hashes_of(const std::string& folder) {
  std::map<std::string, uint64_t> hashes;
  for (const auto& entry : fs::directory_iterator(folder)) {
    hashes[entry.path().filename().string()] = xxh3(file_bytes(entry.path().string()));
  }
  return hashes;
}

TEST(Synth, HeadersOfK3AreCountedAsTheRelease) {
  const TempFolder folder;
  SynthOptions options = options_for(folder.path("k3"), "k3");
  options.headers_only = true;
  EXPECT_EQ(synth(options), options.out +
                                ": k3, 93 layers, 497,220 tensors, 1.56 TB in 96 shards, "
                                "headers only\n");
  int64_t blocks = 0;
  for (const auto& entry : fs::directory_iterator(options.out)) {
    struct stat status {};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    blocks += status.st_blocks;
  }
  EXPECT_LT(blocks * 512, 200'000'000);

  const Checkpoint checkpoint(options.out);
  const Census census = take_census(import_model(checkpoint));
  EXPECT_EQ(checkpoint.shards().size(), 96u);
  EXPECT_EQ(census.total.tensors, 497'220);
  EXPECT_EQ(census.total.parameters, 2'779'931'837'184);
  EXPECT_EQ(census.total.bytes, 1'560'860'324'864);
  EXPECT_EQ(census.of(Family::kRoutedExperts).parameters, 2'722'740'830'208);
  EXPECT_EQ(census.non_expert.parameters, 57'191'006'976);
  EXPECT_EQ(census.vision.parameters, 447'358'976);
  EXPECT_EQ(census.trunk.bytes, 108'811'920'384);
  EXPECT_EQ(census.active_parameters, 104'189'614'848);
}

TEST(Synth, KimiLinearIsAWholeCheckpoint) {
  const TempFolder folder;
  SynthOptions options = options_for(folder.path("linear"), "kimi-linear");
  options.headers_only = true;
  synth(options);
  const Checkpoint checkpoint(options.out);  // index and shards agree
  EXPECT_EQ(checkpoint.tensors(), 20'493);
  EXPECT_EQ(checkpoint.bytes(), 98'245'528'576);
  checkpoint.expect("model.layers.26.self_attn.q_proj.weight", Dtype::kBf16, {6144, 2304});
  checkpoint.expect("model.layers.0.self_attn.A_log", Dtype::kF32, {1, 1, 32, 1});
  checkpoint.expect("model.layers.1.block_sparse_moe.experts.255.w2.weight", Dtype::kBf16,
                    {2304, 1024});
}

TEST(Synth, TheBytesDependOnTheSeedAndNotOnThreads) {
  const TempFolder folder;
  SynthOptions options = options_for(folder.path("one"), "nano");
  options.threads = 1;
  synth(options);
  options.out = folder.path("two");
  options.threads = 2;
  synth(options);
  const auto first = hashes_of(folder.path("one"));
  EXPECT_EQ(first.size(), 14u);
  EXPECT_EQ(first, hashes_of(options.out));
  options.out = folder.path("other");
  options.seed = 1;
  synth(options);
  const auto other = hashes_of(options.out);
  for (const auto& [name, hash] : first) {
    EXPECT_EQ(other.at(name) != hash, name.ends_with(".safetensors") || name == "tiktoken.model")
        << name;
  }
}

TEST(Synth, FewerLayersAreTheFirstOnes) {
  const TempFolder folder;
  SynthOptions options = options_for(folder.path("whole"), "nano");
  synth(options);
  options.out = folder.path("short");
  options.layers = 2;
  synth(options);
  const auto whole = hashes_of(folder.path("whole"));
  const auto shorter = hashes_of(options.out);
  EXPECT_EQ(shorter.at("model-00002-of-000003.safetensors"),
            whole.at("model-00002-of-000009.safetensors"));
  const Model model = import_model(Checkpoint(options.out));
  EXPECT_EQ(model.config.layers.size(), 2u);
  EXPECT_EQ(model.banks.size(), 1u);
}

// Forward throws when a value is not finite after any layer.
TEST(Synth, TheModelsRunThroughAllLayers) {
  const TempFolder folder;
  for (const char* preset : {"nano", "odd"}) {
    const std::string pack = folder.path(std::string(preset) + ".k3pack");
    synth(options_for(folder.path(preset), preset));
    CompileRequest request;
    request.checkpoint = folder.path(preset);
    request.output = pack;
    request.quiet = true;
    testing::internal::CaptureStdout();
    run_compile(request);
    testing::internal::GetCapturedStdout();

    LoadedModel model({.pack_path = pack});
    SequenceState state(model.pack().config());
    const auto vocab = static_cast<size_t>(model.pack().config().vocab_size);
    const std::vector<int32_t> ids = model.tokenizer().encode("In the beginning was the word.");
    std::vector<float> logits(ids.size() * vocab);
    model.forward().run(ids, state, logits.data());
    double squares = 0;
    for (const float logit : logits) squares += static_cast<double>(logit) * logit;
    const double rms = std::sqrt(squares / static_cast<double>(logits.size()));
    EXPECT_GT(rms, 1) << preset;
    EXPECT_LT(rms, 5) << preset;
  }
}

TEST(Synth, WhatIsThereStaysAsItIs) {
  const TempFolder folder;
  const std::string file = folder.write("file", std::string("text"));
  EXPECT_EQ(thrown_message([&] { synth(options_for(file, "nano")); }),
            file + ": is not a folder, it stays as it is");
  fs::create_directory(folder.path("full"));
  folder.write("full/note", std::string("text"));
  EXPECT_EQ(thrown_message([&] { synth(options_for(folder.path("full"), "nano")); }),
            folder.path("full") + ": is not empty, it stays as it is");
  fs::create_directory(folder.path("a.unfinished"));
  EXPECT_NE(thrown_message([&] { synth(options_for(folder.path("a"), "nano")); }), "no error");
  EXPECT_TRUE(fs::exists(folder.path("a.unfinished")));
  EXPECT_FALSE(fs::exists(folder.path("a")));
}

TEST(Synth, AnEmptyFolderIsFilledAlsoWithASlashBehindIt) {
  const TempFolder folder;
  fs::create_directory(folder.path("empty"));
  SynthOptions options = options_for(folder.path("empty") + "/", "nano");
  options.headers_only = true;
  synth(options);
  EXPECT_TRUE(fs::exists(folder.path("empty/config.json")));
}

TEST(Synth, AFailedRunLeavesNothingBehind) {
  const TempFolder folder;
  EXPECT_NE(thrown_message([&] { synth(options_for(folder.path("no/where"), "nano")); }),
            "no error");

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto action = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1'000'000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      thrown_message([&] { synth(options_for(folder.path("nano"), "nano")); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, action);

  EXPECT_EQ(message.find(folder.path("nano.unfinished/model-00001")), 0u) << message;
  EXPECT_TRUE(fs::is_empty(folder.path("")));
}

TEST(Synth, ADiskThatIsTooSmallIsNoticedBefore) {
  const TempFolder folder;
  const std::string message = thrown_message(
      [&] { check_disk_space(folder.path("x"), int64_t{1'000'000'000'000'000'000}); });
  EXPECT_EQ(message.find(folder.path("x") + ": needs 1000.00 PB, the disk has "), 0u) << message;
  EXPECT_EQ(thrown_message([&] { check_disk_space(folder.path("x"), 1); }), "no error");
}

TEST(Synth, JsonSaysWhatWasMade) {
  const TempFolder folder;
  SynthOptions options = options_for(folder.path("x"), "nano");
  options.headers_only = true;
  options.json = true;
  const std::string text = synth(options);
  EXPECT_NE(text.find("\"tensors\": 2900,\n  \"bytes\": 16288384,\n  \"shards\": 9"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace k3
