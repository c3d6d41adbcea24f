#include "runtime/stop_strings.h"

#include <algorithm>
#include <utility>

#include "schema/error.h"

namespace k3 {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw Error("--stop is empty, expected a text");
  }
}

std::string StopStrings::add(std::string_view text) {
  if (found_) return {};
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    found_ = true;
    std::string before = held_.substr(0, first);
    held_.clear();
    return before;
  }
  size_t keep = 0;  // the longest end of the text that some stop string begins with
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string before = held_.substr(0, held_.size() - keep);
  held_.erase(0, before.size());
  return before;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace k3
