#include "schema/hash.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace k3 {
namespace {

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 167 + (i >> 8) * 13 + 5) & 255u);
  }
  return bytes;
}

// The numbers come from tests/spec_reader.py, which has its own XXH3: all length classes of the
// algorithm and both sides of their borders.
TEST(Hash, IsXxh3AsTheIndependentReaderComputesIt) {
  const std::vector<std::pair<size_t, uint64_t>> known = {
      {0, 0x2d06800538d394c2u},    {1, 0x929e358d27ae3ee2u},    {3, 0xd95f511cd1108231u},
      {4, 0xca1c63ab788ab176u},    {8, 0xf9e91f27291ff523u},    {9, 0xcaf43cf2dddbdf84u},
      {16, 0x1fbdc0fc5c58a1e6u},   {17, 0xfee0a1ba3ee6ade1u},   {32, 0x1adce08a0a2bccb1u},
      {33, 0x95572f4bf59a18b5u},   {128, 0x5852e3f29796b15du},  {129, 0xccdd55e72fcbe19au},
      {240, 0xfd89c11687b8b48au},  {241, 0xae02df2598c4ffacu},  {1024, 0x5a487b950ce18bdau},
      {1025, 0x1e0fb31a274c3954u}, {6000, 0xd4bda64c9e74246du},
  };
  for (const auto& [size, want] : known) EXPECT_EQ(xxh3(pattern(size)), want) << size;
}

TEST(Hash, AnyCuttingGivesTheSameDigest) {
  const auto bytes = pattern(6000);
  for (const size_t piece : {1, 63, 64, 65, 1000, 6000}) {
    Xxh3Stream stream;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      stream.update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(stream.digest(), xxh3(bytes)) << piece;
  }
}

TEST(Hash, HexDigitsAreAlwaysSixteen) {
  EXPECT_EQ(hex_digits(0x0a), "000000000000000a");
  EXPECT_EQ(hex_digits(~uint64_t{0}), "ffffffffffffffff");
}

}  // namespace
}  // namespace k3
