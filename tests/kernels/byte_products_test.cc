#include "kernels/byte_products.h"

#include <gtest/gtest.h>

#include "kernels/quantize_activations.h"
#include "schema/formats/mxfp4.h"

namespace k3 {
namespace {

int byte_of(uint32_t word, int i) {
  return static_cast<int8_t>(word >> (8 * i));
}

TEST(ChooseBytes, NamesTheEightBytesAndTheirSigns) {
  EXPECT_EQ(choose_bytes(0x83828180u, 0x07060504u, 0x7362u), 0x07830682u);
  EXPECT_EQ(choose_bytes(0x007f80ffu, 0u, 0x3210u), 0x007f80ffu);
  EXPECT_EQ(choose_bytes(0x007f80ffu, 0u, 0xba98u), 0x0000ffffu);
  EXPECT_EQ(choose_bytes(1u, 2u, 0xffff4040u), 0x02010201u);  // high half of the selector: unread
}

TEST(AddByteProducts, TakesBothSidesAsSigned) {
  EXPECT_EQ(add_byte_products(0x80ff017fu, 0x80017fffu, 1000), 1000 + 16384 - 1 + 127 - 127);
}

TEST(SplitCode, HoldsEveryCodeInTwoBytes) {
  for (int code = -kMaxActivationCode; code <= kMaxActivationCode; ++code) {
    const SplitCode split = split_code(code);
    ASSERT_EQ(256 * split.high + split.low, code);
  }
}

TEST(TritWord, DecodesEveryByteOnEveryPlaceAsDecodeTritDoes) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t others = 0x80ff0041u * (byte + 1);
      const uint32_t mask = 255u << (8 * i);
      TritWord word((others & ~mask) | byte << (8 * i));
      for (int place = 0; place < kTritsPerByte; ++place) {
        ASSERT_EQ(byte_of(word.next(), i) - 1, decode_trit(static_cast<uint8_t>(byte), place));
      }
    }
  }
}

TEST(Mxfp4DoubledBytes, DecodesEveryCodeInEveryNibble) {
  for (unsigned code = 0; code < 16; ++code) {
    for (int at = 0; at < 8; ++at) {
      for (const uint32_t others : {0x00000000u, 0xffffffffu, 0x89abcdefu}) {
        const uint32_t mask = 15u << (4 * at);
        const DoubledBytes bytes = mxfp4_doubled_bytes((others & ~mask) | code << (4 * at));
        ASSERT_EQ(byte_of(at < 4 ? bytes.first : bytes.second, at % 4), decode_mxfp4_doubled(code));
      }
    }
  }
}

}  // namespace
}  // namespace k3
