// The one exception type for faults that come from outside, and the check for faults of our own.
//
// A message names the file, the thing, what was found and what was expected, in that order:
//   throw Error(path, ": tensor ", name, ": shape is ", got, ", expected ", want);
// main() alone catches it, prints one line on stderr and exits with status 1.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace k3 {

class Error : public std::runtime_error {
 public:
  template <class... Parts>
  explicit Error(const Parts&... parts) : std::runtime_error(concatenate(parts...)) {}

 private:
  template <class... Parts>
  static std::string concatenate(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return std::move(text).str();
  }
};

// Ends the process with one line naming the broken invariant.
[[noreturn]] void fail_check(const char* condition, const char* file, int line);

}  // namespace k3

// For our own mistakes only, never for input. Also on in release builds.
#define K3_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::k3::fail_check(#condition, __FILE__, __LINE__))
