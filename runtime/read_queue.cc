// A read that comes back short or refused is not examined: whatever is missing is read again
// through File, which either succeeds (an odd end of the file, an alignment that this one place
// does not like, more than one call may return) or says in one line what is wrong. So there is one
// path for errors, and none of it is on the path that matters for speed.
#include "runtime/read_queue.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "schema/error.h"
#include "schema/extent.h"
#include "schema/layout.h"

namespace k3 {
namespace {

constexpr uint64_t kWakeTag = ~uint64_t{0};

}  // namespace

struct ReadQueue::Ring {
  io_uring ring = {};
  uint64_t wake_count = 0;  // where the read of the wake descriptor goes
  bool wake_is_armed = false;

  ~Ring() { io_uring_queue_exit(&ring); }
};

ReadQueue::ReadQueue(const File& file, ReadPath wanted, int depth) : file_(file), depth_(depth) {
  K3_CHECK(depth > 0);
  wake_descriptor_ = ::eventfd(0, EFD_CLOEXEC);
  if (wake_descriptor_ < 0) throw Error("cannot make an event descriptor: ", std::strerror(errno));
  if (wanted == ReadPath::kDirect) {
    // By the descriptor, not the path: the same file, whatever the path has come to mean.
    const std::string self = "/proc/self/fd/" + std::to_string(file.descriptor());
    direct_descriptor_ = ::open(self.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (direct_descriptor_ >= 0 && !direct_reads_work()) {
      ::close(direct_descriptor_);
      direct_descriptor_ = -1;
    }
  }
  auto ring = std::make_unique<Ring>();
  const auto entries = static_cast<unsigned>(depth + 1);  // and the wake descriptor's
  if (io_uring_queue_init(entries, &ring->ring, 0) < 0) return;
  ring_ = std::move(ring);
  reads_.resize(static_cast<size_t>(depth));
  for (size_t place = reads_.size(); place > 0; --place) unused_.push_back(place - 1);
}

ReadQueue::~ReadQueue() {
  while (ring_ != nullptr && in_flight_ > 0) next(true);
  ring_.reset();
  if (direct_descriptor_ >= 0) ::close(direct_descriptor_);
  ::close(wake_descriptor_);
}

// Filesystems that refuse direct reads do so when the file is opened, or when it is read. Offset
// and address are odd multiples of a page, as later ones will be, so a coarser alignment shows.
bool ReadQueue::direct_reads_work() const {
  const auto page = static_cast<size_t>(kExtentAlignment);
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(2 * page, 2 * page)), std::free);
  return memory != nullptr && ::pread(direct_descriptor_, memory.get() + page, page,
                                      file_.size_bytes() > 2 * kExtentAlignment ? page : 0) > 0;
}

void ReadQueue::start(int64_t tag, int64_t offset_bytes, int64_t length_bytes, std::byte* dst) {
  K3_CHECK(!is_full());
  ++in_flight_;
  const Read read{
      .tag = tag, .offset_bytes = offset_bytes, .length_bytes = length_bytes, .dst = dst};
  if (ring_ == nullptr) {
    waiting_.push_back(read);
    return;
  }
  const size_t place = unused_.back();
  unused_.pop_back();
  reads_[place] = read;
  constexpr int64_t kLargestRead = int64_t{1} << 30;  // one call returns less than 2^31 bytes
  int64_t wanted_bytes = std::min(length_bytes, kLargestRead);
  if (is_direct()) wanted_bytes = align_up(wanted_bytes, kExtentAlignment);
  io_uring_sqe* entry = io_uring_get_sqe(&ring_->ring);
  K3_CHECK(entry != nullptr);
  io_uring_prep_read(entry, is_direct() ? direct_descriptor_ : file_.descriptor(), dst,
                     static_cast<unsigned>(wanted_bytes), static_cast<uint64_t>(offset_bytes));
  entry->user_data = place;
}

std::optional<ReadQueue::Done> ReadQueue::next(bool wait) {
  if (ring_ == nullptr) {
    if (!waiting_.empty()) {
      const Read read = waiting_.front();
      waiting_.pop_front();
      --in_flight_;
      ssize_t got = -1;
      if (is_direct()) {
        const auto room = static_cast<size_t>(align_up(read.length_bytes, kExtentAlignment));
        got = ::pread(direct_descriptor_, read.dst, room, read.offset_bytes);
      }
      return finish(read, got);
    }
    uint64_t count = 0;
    if (wait && ::read(wake_descriptor_, &count, sizeof count) < 0) K3_CHECK(errno == EINTR);
    return {};
  }
  io_uring* ring = &ring_->ring;
  if (!ring_->wake_is_armed) {
    io_uring_sqe* entry = io_uring_get_sqe(ring);
    K3_CHECK(entry != nullptr);
    io_uring_prep_read(entry, wake_descriptor_, &ring_->wake_count, sizeof ring_->wake_count, 0);
    entry->user_data = kWakeTag;
    ring_->wake_is_armed = true;
  }
  io_uring_cqe* end = nullptr;
  if (io_uring_sq_ready(ring) > 0 || io_uring_peek_cqe(ring, &end) != 0) {
    io_uring_submit_and_wait(ring, wait ? 1 : 0);
    if (io_uring_peek_cqe(ring, &end) != 0) return {};
  }
  const uint64_t place = end->user_data;
  const int64_t result = end->res;
  io_uring_cqe_seen(ring, end);
  if (place == kWakeTag) {
    ring_->wake_is_armed = false;
    return {};
  }
  --in_flight_;
  unused_.push_back(place);
  return finish(reads_[place], result);
}

ReadQueue::Done ReadQueue::finish(const Read& read, int64_t got_bytes) const {
  const int64_t there = std::clamp<int64_t>(got_bytes, 0, read.length_bytes);
  if (there == read.length_bytes) return {.tag = read.tag, .fault = {}};
  try {
    file_.read_at(read.offset_bytes + there,
                  {read.dst + there, static_cast<size_t>(read.length_bytes - there)});
  } catch (const Error& error) {
    return {.tag = read.tag, .fault = error.what()};
  }
  return {.tag = read.tag, .fault = {}};
}

void ReadQueue::wake() const {
  const uint64_t one = 1;
  K3_CHECK(::write(wake_descriptor_, &one, sizeof one) == sizeof one);
}

std::string describe_reads(const ReadQueue& queue) {
  return std::string(queue.is_direct() ? "direct" : "buffered") +
         (queue.has_ring() ? ", io_uring" : ", one by one");
}

}  // namespace k3
