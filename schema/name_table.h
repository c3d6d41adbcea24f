// Finds one of half a million names by number, without a copy of any name.
//
// A hash map of strings costs more than a hundred bytes a tensor; the names lie in one block
// already, so four bytes a slot, at most half of them taken, are enough.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "schema/error.h"
#include "schema/hash.h"

namespace k3 {

class NameTable {
 public:
  NameTable() = default;
  // Room for `names` names; numbers are below 2^32 - 1.
  explicit NameTable(int64_t names)
      : slots_(std::bit_ceil(2 * static_cast<size_t>(names) + 2), kFree) {
    K3_CHECK(names < int64_t{kFree});
  }

  // `name_of(number)` returns the name behind a number that was inserted.
  // The number under `name`; if there was none, `number` is put there first.
  template <class NameOf>
  uint32_t insert(std::string_view name, uint32_t number, const NameOf& name_of) {
    uint32_t& slot = slots_[slot_of(name, name_of)];
    if (slot == kFree) slot = number;
    return slot;
  }
  template <class NameOf>
  std::optional<uint32_t> find(std::string_view name, const NameOf& name_of) const {
    if (slots_.empty()) return std::nullopt;
    const uint32_t number = slots_[slot_of(name, name_of)];
    return number == kFree ? std::nullopt : std::optional(number);
  }

 private:
  static constexpr uint32_t kFree = std::numeric_limits<uint32_t>::max();

  // The slot that holds `name`, or the free one where it would stand.
  template <class NameOf>
  size_t slot_of(std::string_view name, const NameOf& name_of) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = xxh3(std::as_bytes(std::span(name.data(), name.size()))) & mask;
    while (slots_[slot] != kFree && name_of(slots_[slot]) != name) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<uint32_t> slots_;
};

}  // namespace k3
