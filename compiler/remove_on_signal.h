// Removes one unfinished file when the process is told to end.
#pragma once

#include <string>

namespace k3 {

// While it lives, SIGINT, SIGTERM and SIGHUP unlink `path` before they end the process as they
// would have. At most one lives at a time.
class RemoveOnSignal {
 public:
  explicit RemoveOnSignal(const std::string& path);
  ~RemoveOnSignal();
  RemoveOnSignal(const RemoveOnSignal&) = delete;
  RemoveOnSignal& operator=(const RemoveOnSignal&) = delete;
};

}  // namespace k3
