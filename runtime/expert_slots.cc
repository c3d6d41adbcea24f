#include "runtime/expert_slots.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "schema/error.h"
#include "schema/extent.h"
#include "schema/layout.h"

namespace k3 {

ExpertSlots::ExpertSlots(int64_t count, int64_t slot_bytes)
    : slot_bytes_(align_up(slot_bytes, kExtentAlignment)) {
  if (count == 0) return;
  const auto bytes = static_cast<size_t>(count * slot_bytes_);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error("the expert cache: cannot get ", bytes, " bytes: ", std::strerror(errno));
  }
  // A direct read pins what it writes to: one large page instead of 512. Advice, so not checked.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  memory_ = {static_cast<std::byte*>(memory), bytes};
}

ExpertSlots::~ExpertSlots() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

ExpertSlots::ExpertSlots(ExpertSlots&& other) noexcept
    : memory_(std::exchange(other.memory_, {})), slot_bytes_(other.slot_bytes_) {}

ExpertSlots& ExpertSlots::operator=(ExpertSlots&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(slot_bytes_, other.slot_bytes_);
  return *this;
}

}  // namespace k3
