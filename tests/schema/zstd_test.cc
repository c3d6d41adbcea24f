#include "schema/zstd.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/thrown_message.h"

namespace k3 {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Zstd, GivesBackWhatItCompressed) {
  for (const size_t size : {0, 1, 100, 100'000}) {
    const auto raw = bytes_of(std::string(size, 'x'));
    EXPECT_EQ(decompress_zstd(compress_zstd(raw), static_cast<int64_t>(size), "s"), raw);
  }
}

TEST(Zstd, AnotherSizeThanStatedIsRefusedBeforeAnythingIsAllocated) {
  const auto compressed = compress_zstd(bytes_of("hello"));
  EXPECT_EQ(thrown_message([&] { decompress_zstd(compressed, 6, "s"); }),
            "s: its frame states 5 bytes, the index says 6");
  EXPECT_THROW(decompress_zstd(compressed, -1, "s"), Error);
  EXPECT_THROW(decompress_zstd(compressed, int64_t{1} << 50, "s"), Error);
}

TEST(Zstd, CutGrownAndForeignBytesAreRefused) {
  auto compressed = compress_zstd(bytes_of(std::string(1000, 'x') + "y"));
  for (size_t size = 0; size < compressed.size(); ++size) {
    EXPECT_THROW(decompress_zstd(std::span(compressed).first(size), 1001, "s"), Error) << size;
  }
  compressed.push_back(std::byte{0});
  EXPECT_THROW(decompress_zstd(compressed, 1001, "s"), Error);
  EXPECT_THROW(decompress_zstd(bytes_of("not zstd at all"), 15, "s"), Error);
}

}  // namespace
}  // namespace k3
