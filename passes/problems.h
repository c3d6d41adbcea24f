// The faults that a pass finds. It collects them instead of throwing at the first, so that a user
// sees every bad tensor at once.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace k3 {

class Problems {
 public:
  // One line: the thing, what was found, what was expected.
  template <class... Parts>
  void add(const Parts&... parts) {
    std::ostringstream line;
    (line << ... << parts);
    lines_.push_back(std::move(line).str());
  }
  bool empty() const { return lines_.empty(); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace k3
