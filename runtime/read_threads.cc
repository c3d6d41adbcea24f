#include "runtime/read_threads.h"

#include <unistd.h>

namespace k3 {

ReadThreads::ReadThreads(int count) {
  for (int i = 0; i < count; ++i) threads_.emplace_back([this] { serve(); });
}

ReadThreads::~ReadThreads() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadThreads::start(size_t place, int descriptor, const Read& read) {
  {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back({.place = place, .descriptor = descriptor, .read = read});
  }
  started_.notify_one();
}

std::optional<ReadThreads::End> ReadThreads::next(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) ended_.wait(lock, [this] { return !ends_.empty(); });
  if (ends_.empty()) return {};
  const End end = ends_.front();
  ends_.pop_front();
  return end;
}

void ReadThreads::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    started_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Job job = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const ssize_t got = ::pread(job.descriptor, job.read.dst,
                                static_cast<size_t>(job.read.asked_bytes), job.read.offset_bytes);
    lock.lock();
    ends_.push_back({.place = job.place, .got_bytes = got});
    ended_.notify_one();
  }
}

}  // namespace k3
