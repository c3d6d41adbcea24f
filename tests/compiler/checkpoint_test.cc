#include "compiler/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/compiler/checkpoint_folder.h"
#include "tests/compiler/two_shards.h"

namespace k3 {
namespace {

using test::contains;
using test::kFirst;
using test::kSecond;
using test::message_of;
using test::TestTensor;

class TwoShards : public testing::Test {
 protected:
  std::string message() const {
    return message_of([this] { Checkpoint(folder_.path()); });
  }
  std::string in_index(const std::string& rest) const {
    return folder_.file("model.safetensors.index.json") + rest;
  }
  test::TwoShardsFolder folder_;
};

TEST_F(TwoShards, EveryTensorIsFoundWhereItLies) {
  const Checkpoint checkpoint(folder_.path());
  ASSERT_EQ(checkpoint.tensors(), 3);
  EXPECT_EQ(checkpoint.shards().size(), 2u);
  EXPECT_EQ(checkpoint.bytes(), 16);
  const auto b = checkpoint.find("b");
  ASSERT_TRUE(b);
  EXPECT_EQ(b->dtype, Dtype::kBf16);
  EXPECT_EQ(b->shape, Shape{2});
  EXPECT_EQ(b->source.shard, 0);
  EXPECT_EQ(b->source.offset_bytes + 4, checkpoint.shards()[0]->size_bytes());
  EXPECT_EQ(b->source.length_bytes, 4);
  EXPECT_EQ(checkpoint.find("c")->source.shard, 1);
  EXPECT_FALSE(checkpoint.find("d"));
  for (int64_t i = 0; i < checkpoint.tensors(); ++i) {
    const CheckpointTensor tensor = checkpoint.tensor(i);
    EXPECT_EQ(tensor.number, i);
    EXPECT_EQ(checkpoint.find(tensor.name)->number, i);
  }
}

TEST_F(TwoShards, ExpectNamesWhatIsMissingOrDifferent) {
  const Checkpoint checkpoint(folder_.path());
  EXPECT_EQ(checkpoint.expect("c", Dtype::kF32, {2}).length_bytes, 8);
  EXPECT_EQ(message_of([&] { checkpoint.expect("d", Dtype::kF32, {2}); }),
            folder_.path() + ": tensor d: missing, expected F32 [2]");
  EXPECT_EQ(message_of([&] {
              checkpoint.expect("c", Dtype::kF32, {1, 2});
            }),
            folder_.file(kSecond) + ": tensor c: is F32 [2], expected F32 [1, 2]");
  EXPECT_TRUE(contains(message_of([&] { checkpoint.expect("c", Dtype::kBf16, {2}); }),
                       "is F32 [2], expected BF16 [2]"));
}

TEST_F(TwoShards, AMissingShardIsNamed) {
  std::filesystem::remove(folder_.file(kSecond));
  EXPECT_EQ(message(),
            in_index(": tensor c: lies in " + kSecond + ", which is missing from the folder"));
}

TEST_F(TwoShards, AShardThatTheIndexDoesNotNameIsRefused) {
  folder_.write_shard("old.safetensors", {{"z", Dtype::kU8, {1}}});
  EXPECT_TRUE(contains(message(), "old.safetensors: a shard that model.safetensors.index.json"));
}

TEST_F(TwoShards, AStaleTensorInAnIndexedShardIsRefused) {
  folder_.write_shard(kSecond, {{"c", Dtype::kF32, {2}}, {"stale", Dtype::kU8, {1}}});
  EXPECT_EQ(message(),
            folder_.file(kSecond) + ": tensor stale: is not in model.safetensors.index.json");
}

TEST_F(TwoShards, ATensorInTwoShardsIsRefusedWhicheverTheIndexNames) {
  folder_.write_shard(kSecond, {{"c", Dtype::kF32, {2}}, {"a", Dtype::kU8, {4}}});
  EXPECT_EQ(message(), folder_.path() + ": tensor a: is in " + kFirst + " and in " + kSecond +
                           ", expected one shard");
}

TEST_F(TwoShards, TwoSetsOfShardsSideBySideAreRefused) {
  for (int i = 1; i <= 3; ++i) {
    folder_.write_shard("model-0000" + std::to_string(i) + "-of-000003.safetensors", {});
  }
  EXPECT_EQ(message(), folder_.path() +
                           ": holds two sets of shards, 2 named -of-000002 and 3 named "
                           "-of-000003: remove one");
}

TEST_F(TwoShards, TheIndexMustAgreeWithTheHeaders) {
  folder_.write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"d", kSecond}});
  EXPECT_TRUE(contains(message(), "tensor d: should lie in " + kSecond + ", neither that shard"));
  folder_.write_index({{"a", kFirst}, {"b", kSecond}, {"c", kSecond}});
  EXPECT_EQ(message(), in_index(": tensor b: should lie in " + kSecond + ", it is in " + kFirst));
  folder_.write_index({{"a", kFirst}, {"c", kSecond}});
  EXPECT_TRUE(contains(message(), "tensor b: is not in model.safetensors.index.json"));
  folder_.write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}}, R"({"total_size":17})");
  EXPECT_TRUE(contains(message(), "metadata.total_size: is 17, the tensors of all shards have 16"));
}

TEST_F(TwoShards, AKeyGivenTwiceInTheIndexIsRefused) {
  folder_.write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"a", kFirst}});
  EXPECT_EQ(message(), in_index(": tensor a: is there twice"));
  folder_.write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"a", kSecond}});
  EXPECT_EQ(message(), in_index(": tensor a: is there twice"));
  const auto refused = [&](const std::string& text, const std::string& complaint) {
    folder_.write("model.safetensors.index.json", text);
    EXPECT_TRUE(contains(message(), complaint));
  };
  refused(R"({"weight_map":{},"weight_map":{}})", "weight_map: is there twice");
  refused(R"({"metadata":{},"metadata":{}})", "metadata: is there twice");
  refused(R"({"metadata":{"total_size":1,"total_size":1}})", "total_size: is there twice");
}

TEST_F(TwoShards, AnIndexThatLeavesTheFolderIsRefused) {
  for (const std::string path :
       {"../x.safetensors", "/tmp/x.safetensors", "sub/x.safetensors", "..\\\\x.safetensors",
        "a\\u0000.safetensors", "..", "", "config.json"}) {
    folder_.write_index({{"a", path}, {"b", kFirst}, {"c", kSecond}});
    EXPECT_TRUE(contains(message(), "expected the name of a .safetensors file in this folder"))
        << path;
  }
}

TEST_F(TwoShards, AnIndexOfAnotherFormIsRefused) {
  const auto refused = [&](const std::string& text, const std::string& complaint) {
    folder_.write("model.safetensors.index.json", text);
    EXPECT_TRUE(contains(message(), complaint)) << text.substr(0, 80);
  };
  refused("", "the text ends, expected '{'");
  refused("{}", "weight_map: missing");
  refused("[]", "found '[', expected '{'");
  refused(R"({"weight_map":[]})", "expected '{'");
  refused(R"({"weight_map":{"a":1}})", "expected a string");
  refused(R"({"weight_map":{},"metadata":{"total_size":-1}})", "expected a non-negative integer");
  refused(R"({"weight_map":{},"metadata":{"total_size":"16"}})", "expected a non-negative");
  refused(R"({"weight_map":{},"metadata":null})", "expected '{'");
  refused(R"({"weight_map":{}} x)", "expected the end of the text");
  refused(R"({"other":)" + std::string(100, '[') + "}", "nested deeper than 64 levels");
  refused(R"({"other":01})", "found '1', expected '}'");
  refused(R"({"other":tru})", "expected a digit");
  refused(R"({"other":[1,]})", "expected a digit");
  refused(R"({"other":{"a"}})", "expected ':'");
  refused("{\"" + std::string(size_t{2} << 20, 'x'), "a string of more than 65536 bytes");
}

TEST_F(TwoShards, FieldsOfTheIndexThatWeDoNotKnowAreSkipped) {
  folder_.write("model.safetensors.index.json",
                R"({"version":[1,-2.5e+3,{"x":[],"y":{}},[[]],true,null,"s"],"weight_map":{"a":")" +
                    kFirst + R"(","b":")" + kFirst + R"(","c":")" + kSecond +
                    R"("},"metadata":{"total_parameters":3,"total_size":16}})");
  EXPECT_NO_THROW(Checkpoint(folder_.path()));
}

TEST_F(TwoShards, LinksToFilesElsewhereAreFollowedAndDeadOnesNamed) {
  const test::CheckpointFolder cache;
  const test::CheckpointFolder blobs;
  int number = 0;
  for (const std::string& name :
       {std::string("config.json"), kFirst, kSecond, std::string("model.safetensors.index.json")}) {
    const std::string blob = blobs.file("blob" + std::to_string(number++));
    std::filesystem::copy(folder_.file(name), blob);
    std::filesystem::create_symlink(blob, cache.file(name));
  }
  EXPECT_EQ(Checkpoint(cache.path()).tensors(), 3);
  std::filesystem::remove(blobs.file("blob2"));
  EXPECT_EQ(message_of([&] { Checkpoint(cache.path()); }),
            cache.file(kSecond) + ": a link to a file that is not there");
}

TEST_F(TwoShards, ShardsWithoutAnIndexAreRefused) {
  std::filesystem::remove(folder_.file("model.safetensors.index.json"));
  EXPECT_TRUE(contains(message(), "holds 2 .safetensors files but no model.safetensors.index"));
}

TEST_F(TwoShards, TheFirstBadShardInNameOrderIsReported) {
  folder_.write(kSecond, "junk");
  EXPECT_TRUE(contains(message(), kSecond + ": has 4 bytes"));
  folder_.write(kFirst, "junkjunkjunk");
  EXPECT_TRUE(contains(message(), kFirst + ": the header should have"));
}

TEST(Checkpoint, OneFileNeedsNoIndex) {
  const test::CheckpointFolder folder;
  folder.write("config.json", "{}");
  EXPECT_TRUE(contains(message_of([&] { Checkpoint(folder.path()); }), "no .safetensors file"));
  folder.write_shard("model.safetensors", {{"a", Dtype::kU8, {4}}});
  EXPECT_EQ(Checkpoint(folder.path()).tensors(), 1);
  folder.write_index({{"a", "model.safetensors"}});
  EXPECT_EQ(Checkpoint(folder.path()).tensors(), 1);
}

TEST(Checkpoint, AFolderWithoutConfigOrNoFolderIsNamed) {
  const test::CheckpointFolder folder;
  EXPECT_TRUE(contains(message_of([&] { Checkpoint(folder.path()); }), "config.json: cannot open"));
  EXPECT_TRUE(contains(message_of([&] { Checkpoint(folder.file("none")); }), "none/config.json"));
}

// Longer than one piece of the scanner, so that tokens lie across its refills.
TEST(Checkpoint, AnIndexOfMegabytesIsStreamed) {
  const test::CheckpointFolder folder;
  folder.write("config.json", "{}");
  std::vector<TestTensor> tensors;
  std::vector<std::pair<std::string, std::string>> entries;
  for (int i = 0; i < 60000; ++i) {
    std::string name = "tensor.";
    name.append(static_cast<size_t>(i % 97), 'x').append(std::to_string(i));
    tensors.push_back({name, Dtype::kU8, {0}});
    entries.emplace_back(name, "model.safetensors");
  }
  folder.write_shard("model.safetensors", tensors);
  folder.write_index(entries);
  EXPECT_GT(std::filesystem::file_size(folder.file("model.safetensors.index.json")), 4u << 20);
  EXPECT_EQ(Checkpoint(folder.path()).tensors(), 60000);
}

}  // namespace
}  // namespace k3
