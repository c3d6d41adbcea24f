#include "compiler/compile.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "compiler/checkpoint.h"
#include "compiler/families.h"
#include "schema/hash.h"
#include "schema/little_endian.h"
#include "schema/pack_reader.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

const std::string kNano = K3_SOURCE_DIR "/examples/nano/checkpoint";

// Runs a quiet compile of the nano checkpoint; returns what it printed.
std::string compile(CompileRequest request) {
  if (request.checkpoint.empty()) request.checkpoint = kNano;
  request.quiet = true;
  testing::internal::CaptureStdout();
  try {
    run_compile(request);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

CompileRequest to(const std::string& output) {
  CompileRequest request;
  request.output = output;
  return request;
}

CompileRequest int8(CompileRequest request) {
  request.options.ternary_trunk.trunk = Precision::kInt8;
  request.options.ternary_trunk.head = Precision::kInt8;
  return request;
}

TEST(Compile, NanoIsWholeAndComplete) {
  const TempFolder folder;
  compile(to(folder.path("n.k3pack")));
  const PackReader pack(folder.path("n.k3pack"));
  EXPECT_TRUE(pack.verify().empty());
  EXPECT_EQ(pack.index().content.tensors.size(), 212u);
  ASSERT_EQ(pack.index().content.banks.size(), 7u);
  for (const PackBank& bank : pack.index().content.banks) EXPECT_EQ(bank.experts.size(), 64u);
  EXPECT_EQ(pack.side_file("tiktoken.model"), file_bytes(kNano + "/tiktoken.model"));
}

TEST(Compile, TheBytesDependOnNeitherThreadsNorPathNorTime) {
  const TempFolder folder;
  for (const Precision trunk : {Precision::kSource, Precision::kInt8, Precision::kTernary2}) {
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 7, 0}) {
      CompileRequest request = to(folder.path(std::to_string(threads).append(".k3pack")));
      request.threads = threads;
      request.options.ternary_trunk.trunk = trunk;
      compile(request);
      const auto bytes = file_bytes(request.output);
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first) << threads << " threads";
    }
  }
}

TEST(Compile, ADryRunPredictsTheSizeAndWritesNothing) {
  const TempFolder folder;
  for (const Precision trunk : {Precision::kSource, Precision::kInt8, Precision::kTernary}) {
    CompileRequest request = to(folder.path("n.k3pack"));
    request.options.ternary_trunk.trunk = trunk;
    request.dry_run = true;
    request.json = true;
    const std::string said = compile(request);
    EXPECT_FALSE(std::filesystem::exists(request.output));
    request.dry_run = false;
    compile(request);
    const auto size = std::filesystem::file_size(request.output);
    EXPECT_NE(said.find("\"file_bytes\": " + std::to_string(size) + ","), std::string::npos)
        << said;
    std::filesystem::remove(request.output);
  }
}

TEST(Compile, StopAfterPrintsThePlanAndWritesNothing) {
  const TempFolder folder;
  CompileRequest request = int8(to(folder.path("n.k3pack")));
  request.stop_after = "ternary_trunk";
  const std::string said = compile(request);
  EXPECT_NE(said.find("model.layers.0.mlp.up_proj.weight\tternary_trunk\tint8\t"),
            std::string::npos);
  EXPECT_EQ(said.find("prune_experts"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(request.output));
}

TEST(Compile, SaysThatTernaryWeightsAreRoundedAndUntrained) {
  const TempFolder folder;
  for (const bool json : {false, true}) {
    CompileRequest request = to(folder.path("n.k3pack"));
    request.options.ternary_trunk.trunk = Precision::kTernary;
    request.json = json;
    const std::string said = compile(request);
    EXPECT_NE(said.find("78 matrices are ternary by rounding alone, untrained"), std::string::npos)
        << said;
    EXPECT_EQ(compile(to(folder.path("n.k3pack"))).find("note: "), std::string::npos);
  }
}

TEST(Compile, SourceHashesAreThoseOfTheShards) {
  const TempFolder folder;
  compile(to(folder.path("n.k3pack")));
  const PackReader pack(folder.path("n.k3pack"));
  const auto hashes = pack.report("source_hashes");
  const Model model = import_model(Checkpoint(kNano));
  for (size_t i = 0; i < model.trunk.size(); ++i) {
    const Source& source = model.trunk[i].source;
    std::vector<std::byte> bytes(static_cast<size_t>(source.length_bytes));
    model.shards[static_cast<size_t>(source.shard)]->read_at(source.offset_bytes, bytes);
    EXPECT_EQ(load_little_endian<uint64_t>(&hashes[8 * i]), xxh3(bytes)) << model.trunk[i].name;
    EXPECT_EQ(pack.index().content.tensors[i].name, model.trunk[i].name);
  }
}

TEST(Compile, NeverWritesOverItsOwnInput) {
  const TempFolder folder;
  std::filesystem::copy(kNano, folder.path("checkpoint"));
  CompileRequest request;
  request.checkpoint = folder.path("checkpoint");
  for (const auto& entry : std::filesystem::directory_iterator(request.checkpoint)) {
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
  }
  const std::string shard = request.checkpoint + "/model-00001-of-000009.safetensors";
  request.output = shard;
  EXPECT_NE(thrown_message([&] { compile(request); }).find("is a shard of the checkpoint"),
            std::string::npos);
  std::filesystem::create_hard_link(shard, folder.path("other-name"));
  request.output = folder.path("other-name");
  EXPECT_NE(thrown_message([&] { compile(request); }).find("is a shard of the checkpoint"),
            std::string::npos);
  request.output = request.checkpoint + "/config.json";
  EXPECT_NE(thrown_message([&] { compile(request); }).find("is not a pack"), std::string::npos);
  EXPECT_EQ(file_bytes(shard), file_bytes(kNano + "/model-00001-of-000009.safetensors"));
}

}  // namespace
}  // namespace k3
