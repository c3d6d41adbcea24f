// XXH3-64, the hash of every extent, of the index and of the frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace k3 {

// XXH3-64 of `bytes` with seed 0, as defined by the xxHash specification.
uint64_t xxh3(std::span<const std::byte> bytes);

// Sixteen lower-case hexadecimal digits, the form in which reports and receipts write a hash.
std::string hex_digits(uint64_t hash);

// The same over bytes that arrive in pieces: any cutting gives the same digest.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;

  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace k3
