// Products of packed bytes: the two instructions that GPU kernels for integer formats are made of,
// with a portable meaning, and what is built from them alone.
//
// A word holds four bytes, the first in its low bits. Everything here is host and device, so the
// arithmetic of the GPU's products is tested on a host without a GPU.
#pragma once

#include <cstdint>

#include "schema/formats/ternary.h"
#include "schema/host_device.h"

namespace k3 {

// Four of the eight bytes of (low, high), named by the four low nibbles of `selector`, first byte
// first: 0..3 are low's, 4..7 are high's; with 8 added, eight copies of that byte's top bit. PTX's
// prmt.
K3_HOST_DEVICE inline uint32_t choose_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDA_ARCH__
  uint32_t chosen;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(chosen) : "r"(low), "r"(high), "r"(selector));
  return chosen;
#else
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t chosen = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned name = selector >> (4 * i) & 15u;
    const auto byte = static_cast<uint32_t>(bytes >> (8 * (name & 7u)) & 255u);
    const uint32_t out = (name & 8u) == 0 ? byte : (byte & 0x80u) != 0 ? 255u : 0u;
    chosen |= out << (8 * i);
  }
  return chosen;
#endif
}

// sum + the four products of a's and b's bytes, both signed. PTX's dp4a.
K3_HOST_DEVICE inline int32_t add_byte_products(uint32_t a, uint32_t b, int32_t sum) {
#ifdef __CUDA_ARCH__
  int32_t result;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  return result;
#else
  for (unsigned i = 0; i < 4; ++i) {
    sum += static_cast<int32_t>(static_cast<int8_t>(a >> (8 * i))) *
           static_cast<int32_t>(static_cast<int8_t>(b >> (8 * i)));
  }
  return sum;
#endif
}

// An activation code as two bytes, q = 256 high + low with both in -128..127: why codes end at
// 32639 (quantize_activations.h).
struct SplitCode {
  int8_t high;
  int8_t low;
};
K3_HOST_DEVICE inline SplitCode split_code(int code) {
  const int low = static_cast<int8_t>(code & 255);
  return {static_cast<int8_t>((code - low) / 256), static_cast<int8_t>(low)};
}

// Four bytes of trits, one place after the other: next() gives trit + 1, 0..2, of each of the four.
//
// With x a byte, floor(3^(p+1) x / 256) is the base-3 number of its trits 0..p; so one
// multiplication gives that for any p, without the remainder that decode_trit carries along, and
// the last trit is that number less three times the one before. A word's even and odd bytes take
// two registers, because 243 * 255 needs 16 bits. The subtraction runs on all four bytes at once:
// it cannot borrow across them, for what it leaves is 0..2 in each.
class TritWord {
 public:
  TritWord() = default;
  K3_HOST_DEVICE explicit TritWord(uint32_t bytes)
      : even_(bytes & 0x00ff00ffu), odd_(bytes >> 8 & 0x00ff00ffu) {}

  K3_HOST_DEVICE uint32_t next() {
    power_ *= 3;
    const uint32_t prefix = choose_bytes(even_ * power_, odd_ * power_, 0x7351u);
    const uint32_t trits = prefix - 3u * before_;
    before_ = prefix;
    return trits;
  }

 private:
  uint32_t even_ = 0;
  uint32_t odd_ = 0;
  uint32_t before_ = 0;
  uint32_t power_ = 1;  // a constant wherever next() is unrolled
};

// Eight mxfp4 codes, the first in the low nibble, as bytes of twice their value.
struct DoubledBytes {
  uint32_t first;   // codes 0..3
  uint32_t second;  // codes 4..7
};
K3_HOST_DEVICE inline DoubledBytes mxfp4_doubled_bytes(uint32_t codes) {
  // Bytes m of the tables are the doubled magnitudes 0, 1, 2, 3, 4, 6, 8, 12 and their negatives:
  // looked up both, because negative zero forbids turning one into the other byte by byte.
  constexpr uint32_t kLow = 0x03020100u, kHigh = 0x0c080604u;
  constexpr uint32_t kNegativeLow = 0xfdfeff00u, kNegativeHigh = 0xf4f8fafcu;
  const uint32_t magnitudes = codes & 0x77777777u;
  const uint32_t upper = magnitudes >> 16;
  const uint32_t shifted = codes << 4;  // the signs of even codes on top of bytes, too
  const uint32_t signs_first = choose_bytes(shifted, codes, 0xd9c8u);
  const uint32_t signs_second = choose_bytes(shifted, codes, 0xfbeau);
  return {(choose_bytes(kLow, kHigh, magnitudes) & ~signs_first) |
              (choose_bytes(kNegativeLow, kNegativeHigh, magnitudes) & signs_first),
          (choose_bytes(kLow, kHigh, upper) & ~signs_second) |
              (choose_bytes(kNegativeLow, kNegativeHigh, upper) & signs_second)};
}

}  // namespace k3
