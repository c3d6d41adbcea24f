// A read that comes back short or refused is not examined: whatever is missing is read again
// through File, which either succeeds (an odd end of the file, an alignment that this one place
// does not like, more than one call may return) or says in one line what is wrong. So there is one
// path for errors, and none of it is on the path that matters for speed.
#include "runtime/read_queue.h"

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "schema/error.h"
#include "schema/extent.h"
#include "schema/layout.h"

namespace k3 {

struct ReadQueue::Ring {
  io_uring ring = {};
  ~Ring() { io_uring_queue_exit(&ring); }
};

ReadQueue::ReadQueue(const File& file, ReadPath wanted, int depth, bool allow_ring)
    : file_(file), depth_(depth), reads_(static_cast<size_t>(depth)) {
  K3_CHECK(depth > 0);
  for (size_t place = reads_.size(); place > 0; --place) unused_.push_back(place - 1);
  if (wanted == ReadPath::kDirect) {
    // By the descriptor, not the path: the same file, whatever the path has come to mean.
    const std::string self = "/proc/self/fd/" + std::to_string(file.descriptor());
    direct_descriptor_ = ::open(self.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (direct_descriptor_ >= 0 && !direct_reads_work()) {
      ::close(direct_descriptor_);
      direct_descriptor_ = -1;
    }
  }
  io_uring ring = {};
  if (allow_ring && io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0) == 0) {
    ring_ = std::make_unique<Ring>();
    ring_->ring = ring;
  } else {
    constexpr int kMostThreads = 16;
    threads_ = std::make_unique<ReadThreads>(std::min(depth, kMostThreads));
  }
}

ReadQueue::~ReadQueue() {
  while (in_flight_ > 0) next(true);
  ring_.reset();
  if (direct_descriptor_ >= 0) ::close(direct_descriptor_);
}

// Filesystems that refuse direct reads do so when the file is opened, or when it is read. Offset
// and address are odd multiples of a page, as later ones will be, so a coarser alignment shows.
bool ReadQueue::direct_reads_work() const {
  const auto page = static_cast<size_t>(kExtentAlignment);
  if (file_.size_bytes() < 2 * kExtentAlignment) return false;
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(2 * page, 2 * page)), std::free);
  return memory != nullptr && ::pread(direct_descriptor_, memory.get() + page, page,
                                      kExtentAlignment) == kExtentAlignment;
}

void ReadQueue::start(int64_t tag, int64_t offset_bytes, int64_t length_bytes, std::byte* dst) {
  constexpr int64_t kLargestRead = int64_t{1} << 30;  // one call returns less than 2^31 bytes
  K3_CHECK(in_flight_ < depth_);
  ++in_flight_;
  const size_t place = unused_.back();
  unused_.pop_back();
  Read& read = reads_[place];
  read = {.tag = tag,
          .offset_bytes = offset_bytes,
          .length_bytes = length_bytes,
          .asked_bytes = std::min(length_bytes, kLargestRead),
          .dst = dst};
  if (is_direct()) read.asked_bytes = align_up(read.asked_bytes, kExtentAlignment);
  const int descriptor = is_direct() ? direct_descriptor_ : file_.descriptor();
  if (threads_ != nullptr) {
    threads_->start(place, descriptor, read);
    return;
  }
  io_uring_sqe* entry = io_uring_get_sqe(&ring_->ring);
  K3_CHECK(entry != nullptr);  // there are as many as reads
  io_uring_prep_read(entry, descriptor, dst, static_cast<unsigned>(read.asked_bytes),
                     static_cast<uint64_t>(offset_bytes));
  entry->user_data = place;
}

void ReadQueue::submit() {
  if (ring_ != nullptr && io_uring_sq_ready(&ring_->ring) > 0) io_uring_submit(&ring_->ring);
}

std::optional<ReadQueue::Done> ReadQueue::next(bool wait) {
  if (in_flight_ == 0) return {};
  std::optional<ReadThreads::End> end;
  if (threads_ != nullptr) {
    end = threads_->next(wait);
  } else {
    submit();
    io_uring_cqe* entry = nullptr;
    int status = io_uring_peek_cqe(&ring_->ring, &entry);
    while (wait && status != 0) {  // a signal may come first
      io_uring_submit_and_wait(&ring_->ring, 1);
      status = io_uring_peek_cqe(&ring_->ring, &entry);
    }
    if (status == 0) {
      end = {.place = entry->user_data, .got_bytes = entry->res};
      io_uring_cqe_seen(&ring_->ring, entry);
    }
  }
  if (!end.has_value()) return {};
  --in_flight_;
  unused_.push_back(end->place);
  return finish(reads_[end->place], end->got_bytes);
}

ReadQueue::Done ReadQueue::finish(const Read& read, int64_t got_bytes) const {
  const int64_t there = std::clamp<int64_t>(got_bytes, 0, read.length_bytes);
  try {
    if (there < read.length_bytes) {
      file_.read_at(read.offset_bytes + there,
                    {read.dst + there, static_cast<size_t>(read.length_bytes - there)});
    }
  } catch (const Error& error) {
    return {.tag = read.tag, .fault = error.what()};
  }
  return {.tag = read.tag, .fault = {}};
}

std::string describe_reads(const ReadQueue& queue) {
  return std::string(queue.is_direct() ? "direct" : "buffered") +
         (queue.has_ring() ? ", io_uring" : ", threads");
}

}  // namespace k3
