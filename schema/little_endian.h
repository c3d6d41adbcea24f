// Integers of on-disk structures, byte by byte, so that a file means the same on every host.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace k3 {

// The sizeof(T) bytes from `src` on as an integer, least significant first.
template <std::unsigned_integral T>
T load_little_endian(const std::byte* src) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | (static_cast<T>(src[i]) << (8 * i)));
  }
  return value;
}

template <std::unsigned_integral T>
void store_little_endian(T value, std::byte* dst) {
  for (size_t i = 0; i < sizeof(T); ++i) dst[i] = static_cast<std::byte>(value >> (8 * i));
}

}  // namespace k3
