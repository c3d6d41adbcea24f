// ternary and ternary2: weight = row_scale x multiplier x code, with codes -1..1 or -4..4. A u8
// multiplier per 160 inputs and one f32 scale per row, as for int8.
//
// A code of ternary is a trit; one of ternary2 is 3 t1 + t2, nine uniform levels out of two trits.
// Five trits fill a byte, 243 of 256 values. The byte is their base-3 number v not as it stands but
// as a binary fraction, ceil(256 v / 243): three times the fraction has the top trit as its integer
// part and the other four as what remains, so decoding multiplies by three and never divides. The
// 13 bytes between those fractions decode too, alike on every machine, but no encoder makes them.
//
// A block of 160 inputs is 32 bytes. Byte b holds inputs b, b + 32, ... b + 128, the first on top:
// one 32-byte load gives five vectors of 32 consecutive inputs without a shuffle.
#pragma once

#include <cstdint>
#include <span>

#include "schema/format.h"
#include "schema/formats/int8.h"
#include "schema/host_device.h"

namespace k3 {

inline constexpr int kTritsPerByte = 5;
inline constexpr int kFiveTritValues = 243;
inline constexpr int64_t kTernaryBlockBytes = kBlockInputs / kTritsPerByte;
inline constexpr uint8_t kFiveZeroTrits = 0x80;

// The byte of five trits from their number v in 0..242, whose base-3 digits are trit + 1, the top
// one first.
K3_HOST_DEVICE constexpr uint8_t encode_five_trits(int v) {
  return static_cast<uint8_t>((256 * v + kFiveTritValues - 1) / kFiveTritValues);
}

// Trit `place` of a byte, -1..1; 0 is the top one. Defined for every byte.
K3_HOST_DEVICE constexpr int decode_trit(uint8_t byte, int place) {
  unsigned rest = byte;
  for (int i = 0; i < place; ++i) rest = (3 * rest) & 255U;
  return static_cast<int>((3 * rest) >> 8) - 1;
}

// Whether encode_five_trits makes `byte`; false for 13 of 256.
K3_HOST_DEVICE constexpr bool holds_five_trits(uint8_t byte) {
  return encode_five_trits((kFiveTritValues * byte) >> 8) == byte;
}

// Where the trit of an input lies in its row of bytes, and on which place in that byte.
K3_HOST_DEVICE constexpr int64_t trit_byte(int64_t input) {
  return input / kBlockInputs * kTernaryBlockBytes + input % kBlockInputs % kTernaryBlockBytes;
}
K3_HOST_DEVICE constexpr int trit_place(int64_t input) {
  return static_cast<int>(input % kBlockInputs / kTernaryBlockBytes);
}

// The largest code of a ternary format: 1, or 4 for ternary2.
constexpr int largest_ternary_code(Format format) {
  return format == Format::kTernary2 ? 4 : 1;
}

// The first trit of a code of ternary2; the second is code - 3 x first.
constexpr int first_trit(int code) {
  return (code + 4) / 3 - 1;
}

// Exact in double for any row scale: 24 + 8 + 3 bits.
K3_HOST_DEVICE inline double decode_ternary(int code, uint8_t multiplier, float row_scale) {
  return static_cast<double>(row_scale) * (static_cast<int>(multiplier) * code);
}

// Packs whole blocks of trits, in input order: 160 of `trits` make 32 of `bytes`.
inline void pack_trits(std::span<const int8_t> trits, std::span<uint8_t> bytes) {
  for (size_t at = 0; at < bytes.size(); ++at) {
    constexpr auto kBytes = static_cast<size_t>(kTernaryBlockBytes);
    const size_t first = at / kBytes * kBlockInputs + at % kBytes;
    int v = 0;
    for (size_t place = 0; place < kTritsPerByte; ++place) {
      v = 3 * v + trits[first + place * kBytes] + 1;
    }
    bytes[at] = encode_five_trits(v);
  }
}

}  // namespace k3
