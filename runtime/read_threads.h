// Reads in flight where the system has no queue for them: as many threads, each in one read.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace k3 {

struct Read {
  int64_t tag = 0;
  int64_t offset_bytes = 0;
  int64_t length_bytes = 0;  // that are wanted
  int64_t asked_bytes = 0;   // of the system, whole pages for direct reads
  std::byte* dst = nullptr;
};

class ReadThreads {
 public:
  struct End {
    size_t place = 0;
    int64_t got_bytes = 0;  // negative: failed
  };

  explicit ReadThreads(int count);
  ~ReadThreads();  // what has been started must have ended

  void start(size_t place, int descriptor, const Read& read);
  std::optional<End> next(bool wait);

 private:
  struct Job {
    size_t place = 0;
    int descriptor = -1;
    Read read;
  };
  void serve();

  std::mutex mutex_;  // over all that follows
  std::condition_variable started_;
  std::condition_variable ended_;
  std::deque<Job> waiting_;
  std::deque<End> ends_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace k3
