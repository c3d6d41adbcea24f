// The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection that changes
// half of the bits when one bit of the input changes. With it, random number i of a seed is a
// function of seed and i alone, the same in any order and on every machine.
#pragma once

#include <cstdint>

namespace k3 {

inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio

inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Number `i` of SplitMix64 started with `seed`.
inline uint64_t split_mix(uint64_t seed, uint64_t i) {
  return mix_bits(seed + (i + 1) * kSplitMixStep);
}

}  // namespace k3
