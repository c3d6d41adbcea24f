#include "runtime/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace k3 {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number in a control-group file; kUnlimited when the file is absent or says "max".
int64_t read_limit(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnlimited;
}

int64_t left_in_group(const std::string& limit_path, const std::string& usage_path) {
  const int64_t limit = read_limit(limit_path);
  const int64_t usage = read_limit(usage_path);
  if (limit == kUnlimited || usage == kUnlimited) return kUnlimited;
  return std::max<int64_t>(0, limit - usage);
}

int64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kibibytes = 0;
  std::string unit;
  while (file >> key >> kibibytes) {
    if (key == "MemAvailable:") return kibibytes * 1024;
    std::getline(file, unit);
  }
  return kUnlimited;
}

}  // namespace

int64_t available_memory_bytes() {
  return std::min({mem_available(),
                   left_in_group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
                   left_in_group("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                 "/sys/fs/cgroup/memory/memory.usage_in_bytes")});
}

}  // namespace k3
