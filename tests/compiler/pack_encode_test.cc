#include "compiler/pack_encode.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/tiny_pack.h"

namespace k3 {
namespace {

std::vector<std::byte> encode_whole(const PackIndex& index) {
  return encode_index(encode_content(index.content), index.provenance, index.receipts,
                      index.retired);
}

TEST(PackEncode, TheSameIndexGivesTheSameBytes) {
  EXPECT_EQ(encode_whole(TinyPack().index), encode_whole(TinyPack().index));
}

// What --dry-run relies on: hashes and results that only encode knows do not change the length.
TEST(PackEncode, TheLengthDependsOnNoValue) {
  PackIndex index = TinyPack().index;
  const size_t length = encode_whole(index).size();
  const auto set_all = [&](uint64_t hash, uint8_t least, int32_t fixed_point, double number) {
    for (PackTensor& tensor : index.content.tensors) tensor.extent.xxh3 = hash;
    for (PackBank& bank : index.content.banks) {
      bank.fixed_point = fixed_point;
      for (PackExpert& expert : bank.experts) {
        expert.extent.xxh3 = hash;
        expert.least_exponent = {least, least, least};
      }
    }
    for (PackSideFile& file : index.content.side_files) file.extent.xxh3 = hash;
    for (PackReport& report : index.provenance.reports) report.extent.xxh3 = hash;
    index.provenance.passes[0].numbers[0].second = number;
  };
  set_all(0, 0, 0, 0.0);
  EXPECT_EQ(encode_whole(index).size(), length);
  set_all(~uint64_t{0}, 255, -200, 1e300);
  EXPECT_EQ(encode_whole(index).size(), length);
}

TEST(PackEncode, ContentStartsOnEightBytesWhateverStandsBeforeIt) {
  PackIndex index = TinyPack().index;
  const std::vector<std::byte> content = encode_content(index.content);
  for (size_t extra = 0; extra < 9; ++extra) {
    index.provenance.compiler = std::string(extra, 'x');
    const auto bytes = encode_index(content, index.provenance, {}, {});
    const auto found = std::search(bytes.begin(), bytes.end(), content.begin(), content.end());
    ASSERT_NE(found, bytes.end());
    EXPECT_EQ((found - bytes.begin()) % 8, 0);
  }
}

}  // namespace
}  // namespace k3
