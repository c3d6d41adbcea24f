#include "compiler/remote_checkpoint.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <set>
#include <sstream>
#include <string>

#include "compiler/census.h"
#include "tests/compiler/checkpoint_folder.h"
#include "tests/compiler/kimi_k3_folder.h"
#include "tests/compiler/loopback_server.h"
#include "tests/compiler/peak_memory.h"
#include "tests/compiler/two_shards.h"

namespace k3 {
namespace {

using test::contains;
using test::HttpConnection;
using test::HttpRequest;
using test::kFirst;
using test::kSecond;
using test::LoopbackServer;
using test::message_of;

LoopbackServer::Handler folder_server(const std::string& folder) {
  return [folder](const HttpRequest& request, HttpConnection& connection) {
    test::serve_from(folder, request, connection);
  };
}

std::string census(const std::string& path, bool json = false) {
  std::ostringstream text;
  run_census({.path = path, .json = json}, text);
  return text.str();
}

// `text` without its first mention of where the checkpoint is.
std::string without(std::string text, const std::string& place) {
  const size_t at = text.find(place);
  EXPECT_NE(at, std::string::npos) << text;
  return text.erase(std::min(at, text.size()), place.size());
}

class RemoteCheckpoint : public testing::Test {
 protected:
  RemoteCheckpoint() : server_(folder_server(folder_.path())) {}
  std::string message() const {
    return message_of([this] { open_remote_checkpoint(server_.url(), {}); });
  }
  std::string at(const std::string& rest) const { return server_.url("/") + rest; }

  test::TwoShardsFolder folder_;
  LoopbackServer server_;
};

TEST(RemoteCensus, EqualsTheLocalOne) {
  const std::string folder = K3_SOURCE_DIR "/examples/nano/checkpoint";
  const LoopbackServer server(folder_server(folder));
  for (const bool json : {false, true}) {
    EXPECT_EQ(without(census(server.url("/"), json), server.url()),
              without(census(folder, json), folder));
  }
  EXPECT_EQ(server.requests().size(), 2u * (2 + 9));
}

TEST(RemoteCensus, OfOneShardIsItsInventory) {
  const std::string folder = K3_SOURCE_DIR "/examples/nano/checkpoint";
  const std::string name = "/model-00003-of-000009.safetensors";
  const LoopbackServer server(folder_server(folder));
  for (const bool json : {false, true}) {
    EXPECT_EQ(without(census(server.url(name), json), server.url()),
              without(census(folder + name, json), folder));
  }
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST(RemoteCensus, SendsTheTokenOfTheEnvironment) {
  const std::string folder = K3_SOURCE_DIR "/examples/nano/checkpoint";
  const LoopbackServer server(folder_server(folder));
  ::setenv("HF_TOKEN", "hf_hunter2", 1);
  const std::string text = census(server.url());
  ::unsetenv("HF_TOKEN");
  EXPECT_EQ(text.find("hunter2"), std::string::npos);
  for (const HttpRequest& request : server.requests()) {
    EXPECT_EQ(request.header("Authorization"), "Bearer hf_hunter2");
  }
}

TEST(RemoteCensus, KimiK3TakesARequestAShardAndTwoMore) {
  const test::CheckpointFolder folder;
  test::write_kimi_k3(folder);
  const LoopbackServer server(folder_server(folder.path()));

  const test::PeakMemory memory;
  const auto start = std::chrono::steady_clock::now();
  const std::string text = census(server.url());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(elapsed.count()));
  RecordProperty("peak_kilobytes", std::to_string(memory.growth_kilobytes().value_or(0)));
  RecordProperty("bytes_sent", std::to_string(server.bytes_sent()));
  EXPECT_LT(memory.growth_kilobytes().value_or(0), 150'000);
  EXPECT_EQ(server.requests().size(), 98u);
  EXPECT_LT(server.bytes_sent(), 170'000'000);
  EXPECT_TRUE(contains(text, "kimi-k3, 497,220 tensors in 96 shards, 1.56 TB"));
  EXPECT_TRUE(contains(text, "26.68 stored for each one used"));
}

TEST_F(RemoteCheckpoint, HasHeadersAndNoData) {
  const Checkpoint checkpoint = open_remote_checkpoint(server_.url("/"), {});
  EXPECT_EQ(checkpoint.folder(), server_.url());
  EXPECT_EQ(checkpoint.tensors(), 3);
  EXPECT_EQ(checkpoint.bytes(), 16);
  EXPECT_EQ(checkpoint.shard_count(), 2);
  EXPECT_EQ(checkpoint.shard_path(1), at(kSecond));
  EXPECT_EQ(checkpoint.find("c")->source.shard, 1);
  EXPECT_FALSE(checkpoint.has_data());
  EXPECT_TRUE(Checkpoint(folder_.path()).has_data());
}

TEST_F(RemoteCheckpoint, WithoutAnIndexIsOneShard) {
  std::filesystem::remove(folder_.file("model.safetensors.index.json"));
  folder_.write_shard("model.safetensors", {{"a", Dtype::kU8, {4}}});
  EXPECT_EQ(open_remote_checkpoint(server_.url(), {}).tensors(), 1);
}

TEST_F(RemoteCheckpoint, WithoutAConfigIsNone) {
  std::filesystem::remove(folder_.file("config.json"));
  EXPECT_EQ(message(), at("config.json: answered 404, expected the config.json of a checkpoint"));
}

TEST_F(RemoteCheckpoint, IsCheckedLikeAFolder) {
  folder_.write_index({{"a", kFirst}, {"b", kFirst}, {"c", kFirst}});
  EXPECT_EQ(message(), at("model.safetensors.index.json: tensor c: should lie in ") + kFirst +
                           ", neither that shard nor any other has it");
  folder_.write_index({{"a", kFirst}, {"c", kSecond}});
  EXPECT_EQ(message(), at(kFirst) + ": tensor b: is not in model.safetensors.index.json");
  folder_.write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}}, R"({"total_size":17})");
  EXPECT_TRUE(contains(message(), "metadata.total_size: is 17, the tensors of all shards have 16"));
  folder_.write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"c", kSecond}});
  EXPECT_TRUE(contains(message(), "tensor c: is there twice"));
}

TEST_F(RemoteCheckpoint, AMissingShardIsNamed) {
  folder_.write_index({{"a", kFirst}, {"c", "model-3.safetensors"}});
  EXPECT_TRUE(contains(message(), at("model-3.safetensors: answered 404")));
}

TEST_F(RemoteCheckpoint, AShardNameLeadsNowhereElse) {
  for (const char* name :
       {"../x.safetensors", "a/b.safetensors", "http://127.0.0.1/x.safetensors", "model.bin", ""}) {
    folder_.write_index({{"a", name}});
    EXPECT_TRUE(contains(message(), "tensor a: lies in \"")) << name;
  }
  folder_.write_index({{"a", "x?y#z %41.safetensors"}});
  message();
  EXPECT_EQ(server_.requests().back().path, "/x%3Fy%23z%20%2541.safetensors");
}

TEST_F(RemoteCheckpoint, NamesNoMoreShardsThanCanBeRead) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (int i = 0; i <= 10'000; ++i) {
    entries.emplace_back("t", std::string("s").append(std::to_string(i)) + ".safetensors");
  }
  folder_.write_index(entries);
  EXPECT_EQ(message(), at("model.safetensors.index.json: names more than 10000 shards"));
  folder_.write_index({});
  EXPECT_EQ(message(), at("model.safetensors.index.json: names no shard"));
  EXPECT_EQ(server_.requests().size(), 4u);
}

TEST_F(RemoteCheckpoint, AHeaderThatDoesNotFitItsFileIsRefused) {
  std::filesystem::resize_file(folder_.file(kSecond),
                               std::filesystem::file_size(folder_.file(kSecond)) + 1);
  EXPECT_TRUE(contains(message(), at(kSecond) + ": the tensors end at byte 8 of the data"));
}

TEST(RemoteCheckpointUrl, APageOfAModelStandsForItsFiles) {
  EXPECT_EQ(files_of_page("https://huggingface.co/org/name/"),
            "https://huggingface.co/org/name/resolve/main");
  EXPECT_EQ(files_of_page("https://huggingface.co/org/name/tree/c5d1dd4c"),
            "https://huggingface.co/org/name/resolve/c5d1dd4c");
  EXPECT_EQ(files_of_page("https://huggingface.co/org/name/blob/main/x.safetensors"),
            "https://huggingface.co/org/name/resolve/main/x.safetensors");
  for (const char* url :
       {"https://huggingface.co/org/name/resolve/main", "https://huggingface.co/o",
        "https://other.example/org/name", "http://localhost:80"}) {
    EXPECT_EQ(files_of_page(url), url);
  }
}

}  // namespace
}  // namespace k3
