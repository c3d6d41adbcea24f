// The memory of the expert cache: so many places of one size, each on whole pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace k3 {

class ExpertSlots {
 public:
  ExpertSlots() = default;
  // Reserves the address space; a page takes memory from when it is first written. `slot_bytes` is
  // rounded up to whole pages, as direct reads need it. Throws Error when the system refuses.
  ExpertSlots(int64_t count, int64_t slot_bytes);
  ~ExpertSlots();
  ExpertSlots(ExpertSlots&& other) noexcept;
  ExpertSlots& operator=(ExpertSlots&& other) noexcept;

  std::byte* at(int64_t slot) const { return memory_.data() + slot * slot_bytes_; }
  std::span<std::byte> memory() const { return memory_; }  // of all slots, for who has to pin it

 private:
  std::span<std::byte> memory_;
  int64_t slot_bytes_ = 0;
};

}  // namespace k3
