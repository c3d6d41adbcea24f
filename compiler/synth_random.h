// Random numbers by counting: number i of a stream depends on the stream's key and on i alone, so
// that any thread can make any part of a tensor and every machine makes the same bytes.
//
// The standard library's distributions are left alone, because each implementation has its own, and
// so are logarithms and exponentials. A bell-shaped value is the sum of the eight bytes of one
// random word: exact integers, a kurtosis of 2.85 (a Gaussian has 3), nothing beyond 4.9 standard
// deviations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "schema/hash.h"
#include "schema/mix_bits.h"

namespace k3 {

class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name)
      : key_(mix_bits(mix_bits(seed + kSplitMixStep) ^
                      xxh3(std::as_bytes(std::span(name.data(), name.size()))))) {}

  // An independent stream of the same seed and name.
  RandomStream branch(uint64_t number) const {
    RandomStream other = *this;
    other.key_ = mix_bits(key_ ^ mix_bits(number + kSplitMixStep));
    return other;
  }

  uint64_t bits(uint64_t i) const { return split_mix(key_, i); }

  // A whole number from 0 to limit - 1, limit up to 2^32. The bias is below limit / 2^32.
  uint64_t below(uint64_t i, uint64_t limit) const { return ((bits(i) >> 32) * limit) >> 32; }

  // Bell-shaped, mean 0, variance 1.
  float bell(uint64_t i) const { return static_cast<float>(byte_sum(bits(i)) - 1020) * kBellStep; }

 private:
  // The variance of a sum of eight bytes is 8 (256^2 - 1) / 12 = 43690.
  static constexpr float kBellStep = 1.0f / 209.0215f;

  static int byte_sum(uint64_t word) {
    constexpr uint64_t kEvenBytes = 0x00ff00ff00ff00ffu;
    constexpr uint64_t kAddLanes = 0x0001000100010001u;  // the top lane becomes the sum of all four
    const uint64_t pairs = (word & kEvenBytes) + ((word >> 8) & kEvenBytes);
    return static_cast<int>((pairs * kAddLanes) >> 48);
  }

  uint64_t key_;
};

}  // namespace k3
