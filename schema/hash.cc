#include "schema/hash.h"

#include <xxhash.h>

// The library's plain functions are compiled for the oldest x86-64; these choose AVX2 or AVX-512 at
// run time, and hash three times as fast.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <cstdio>

#include "schema/error.h"

namespace k3 {

struct Xxh3Stream::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { K3_CHECK(xxh != nullptr); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string hex_digits(uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(state_->xxh);
}
Xxh3Stream::~Xxh3Stream() = default;
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::digest() const {
  return XXH3_64bits_digest(state_->xxh);
}

}  // namespace k3
