// What a program does with its unfinished files when it is told to end.
#pragma once

#include <string>
#include <vector>

namespace k3 {

// While it lives, SIGINT, SIGTERM and SIGHUP unlink the files, write a line to stderr if one is
// given, and then end the process as they would have. At most one lives at a time.
class SignalEnding {
 public:
  explicit SignalEnding(const std::vector<std::string>& files_to_remove,
                        const std::string& line = "");
  ~SignalEnding();
  SignalEnding(const SignalEnding&) = delete;
  SignalEnding& operator=(const SignalEnding&) = delete;
};

}  // namespace k3
