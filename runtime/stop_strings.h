// Text that streams out, held back where it may be the beginning of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace k3 {

class StopStrings {
 public:
  // Throws Error for an empty stop string.
  explicit StopStrings(std::vector<std::string> stops);

  // Adds text and returns what is now certain to come before any stop string. After a stop string
  // was found nothing more comes out.
  std::string add(std::string_view text);

  // The text that was still held back, when the stream ends without a stop string.
  std::string finish();

  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace k3
