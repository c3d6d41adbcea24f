#include "schema/pack_frame.h"

#include <gtest/gtest.h>

#include "schema/hash.h"
#include "schema/little_endian.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

constexpr int64_t kFileBytes = 3 * 4096 + 100;

PackFrame some_frame() {
  return {.index = {.offset_bytes = 3 * 4096, .length_bytes = 100, .xxh3 = 0x0123456789abcdef},
          .file_bytes = kFileBytes};
}

std::string refusal(std::span<const std::byte> bytes, int64_t file_bytes = kFileBytes) {
  return thrown_message([&] { decode_frame(bytes, "p.k3pack", file_bytes); });
}

// A frame with one field changed and its hash made right again.
std::string refusal_of(size_t offset, uint64_t value) {
  auto bytes = encode_frame(some_frame());
  store_little_endian(value, &bytes[offset]);
  store_little_endian(xxh3(std::span(bytes).first(56)), &bytes[56]);
  return refusal(bytes);
}

TEST(PackFrame, DecodesWhatItEncodes) {
  const auto bytes = encode_frame(some_frame());
  const PackFrame frame = decode_frame(bytes, "p.k3pack", kFileBytes);
  EXPECT_EQ(frame.index, some_frame().index);
  EXPECT_EQ(frame.file_bytes, kFileBytes);
}

TEST(PackFrame, LiesAsTheDocumentSays) {
  const auto bytes = encode_frame(some_frame());
  EXPECT_EQ(bytes[0], std::byte{0x89});
  EXPECT_EQ(load_little_endian<uint32_t>(&bytes[8]), 1u);
  EXPECT_EQ(load_little_endian<uint32_t>(&bytes[12]), 64u);
  EXPECT_EQ(load_little_endian<uint64_t>(&bytes[16]), 3u * 4096u);
  EXPECT_EQ(load_little_endian<uint64_t>(&bytes[24]), 100u);
  EXPECT_EQ(bytes[32], std::byte{0xef});
  EXPECT_EQ(load_little_endian<uint64_t>(&bytes[40]), static_cast<uint64_t>(kFileBytes));
}

TEST(PackFrame, EverySingleBitFlipIsRefused) {
  const auto whole = encode_frame(some_frame());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(refusal(bytes), "no error") << "bit " << bit;
  }
}

TEST(PackFrame, AnotherVersionIsNamedAsSuch) {
  auto bytes = encode_frame(some_frame());
  bytes[8] = std::byte{2};  // its hash need not be ours
  EXPECT_EQ(refusal(bytes), "p.k3pack: is version 2, this program reads 1");
}

TEST(PackFrame, ShortTextAndOtherFilesAreNoPacks) {
  EXPECT_EQ(refusal({}), "p.k3pack: not a pack: has 0 bytes, a frame alone has 64");
  const auto bytes = encode_frame(some_frame());
  EXPECT_NE(refusal(std::span(bytes).first(63)), "no error");
  const std::vector<std::byte> text(64, std::byte{'a'});
  EXPECT_EQ(refusal(text), "p.k3pack: not a pack: does not start with \\x89K3PACK\\n");
}

TEST(PackFrame, AFileThatIsShorterOrLongerThanStatedIsRefused) {
  const auto bytes = encode_frame(some_frame());
  EXPECT_NE(refusal(bytes, kFileBytes - 1).find("is cut off"), std::string::npos);
  EXPECT_NE(refusal(bytes, kFileBytes + 1).find("k3c attach"), std::string::npos);
  EXPECT_NO_THROW(decode_frame(bytes, "p", kFileBytes + 1, Tail::kIgnore));
  EXPECT_THROW(decode_frame(bytes, "p", kFileBytes - 1, Tail::kIgnore), Error);
}

TEST(PackFrame, AnIndexThatDoesNotEndTheFileIsRefused) {
  EXPECT_NE(refusal_of(16, 0), "no error");
  EXPECT_NE(refusal_of(16, 2 * 4096), "no error");
  EXPECT_NE(refusal_of(16, 3 * 4096 + 1), "no error");
  EXPECT_NE(refusal_of(16, uint64_t{0} - 8), "no error");
  EXPECT_NE(refusal_of(24, 0), "no error");
  EXPECT_NE(refusal_of(24, 99), "no error");
  EXPECT_NE(refusal_of(24, uint64_t{1} << 31), "no error");
  EXPECT_NE(refusal_of(24, ~uint64_t{0}), "no error");
  EXPECT_NE(refusal_of(40, kFileBytes - 1), "no error");
}

TEST(PackFrame, FeaturesAreKeptAndUnknownOnesRefused) {
  PackFrame frame = some_frame();
  frame.features = kFeatureRotation;
  EXPECT_EQ(decode_frame(encode_frame(frame), "p", kFileBytes).features, kFeatureRotation);
  EXPECT_EQ(refusal_of(48, 2), "p.k3pack: needs features 2 of its reader, this program knows 1");
  EXPECT_NE(refusal_of(48, 3), "no error");
  EXPECT_NE(refusal_of(48, uint64_t{1} << 63), "no error");
}

}  // namespace
}  // namespace k3
