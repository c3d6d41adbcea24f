// The peak of resident memory over a part of a test.
#pragma once

#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace k3::test {

class PeakMemory {
 public:
  // Starts measuring: writing 5 restarts the kernel's record of the peak.
  PeakMemory() {
    ::malloc_trim(0);
    const bool restarted = (std::ofstream("/proc/self/clear_refs") << 5).flush().good();
    if (restarted && kMemoryIsOurs) before_kilobytes_ = peak_kilobytes();
  }

  // By how much the peak has passed what was resident at the start; nothing where the system or a
  // sanitizer does not let us know.
  std::optional<int64_t> growth_kilobytes() const {
    if (!before_kilobytes_) return std::nullopt;
    return peak_kilobytes() - *before_kilobytes_;
  }

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool kMemoryIsOurs = false;
#else
  static constexpr bool kMemoryIsOurs = true;
#endif

  static int64_t peak_kilobytes() {
    const std::string field = "VmHWM:";
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(field)) return std::stoll(line.substr(field.size()));
    }
    return 0;
  }

  std::optional<int64_t> before_kilobytes_;
};

}  // namespace k3::test
