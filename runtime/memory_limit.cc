#include "runtime/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>

namespace k3 {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The files in which one version of control groups says what it allows.
struct GroupFiles {
  std::string_view mount;
  std::string_view limit;
  std::string_view usage;
  std::string_view inactive;  // keys of memory.stat: pages of files
  std::string_view active;
};

constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file",
                                  "active_file"};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file",
                                  "total_active_file"};

// The number that a file starts with; kUnlimited when the file is absent or says "max".
int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnlimited;
}

// The number behind `key` in lines of "key number"; 0 when there is none.
int64_t read_keyed(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  std::string rest;
  int64_t value = 0;
  while (file >> word >> value) {
    if (word == key) return value;
    std::getline(file, rest);
  }
  return 0;
}

int64_t left_in_group(const GroupFiles& files, const std::string& folder) {
  const int64_t limit = read_number(folder + "/" + std::string(files.limit));
  const int64_t usage = read_number(folder + "/" + std::string(files.usage));
  if (limit == kUnlimited || usage == kUnlimited) return kUnlimited;
  const std::string stat = folder + "/memory.stat";
  const int64_t droppable = read_keyed(stat, files.inactive) + read_keyed(stat, files.active);
  return std::clamp<int64_t>(limit - usage + droppable, 0, limit);
}

// Of the group at `group` and all around it. Inside a container the path may be the host's, which
// is not there; the mount itself then is the container's group.
int64_t left_in_groups(const GroupFiles& files, const std::string& root, std::string group) {
  int64_t left = kUnlimited;
  while (true) {
    left = std::min(left, left_in_group(files, root + std::string(files.mount) + group));
    if (group.empty()) return left;
    group.resize(group.find_last_of('/'));
  }
}

}  // namespace

int64_t available_memory_bytes(const std::string& root) {
  int64_t available = kUnlimited;
  const int64_t kibibytes = read_keyed(root + "/proc/meminfo", "MemAvailable:");
  if (kibibytes > 0) available = kibibytes * 1024;
  // Lines of "0::/path" for version 2, "7:memory:/path" for version 1.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t name = line.find(':');
    const size_t path = line.find(':', name == std::string::npos ? name : name + 1);
    if (path == std::string::npos) continue;
    std::string controllers = line.substr(name, path - name + 1);
    std::replace(controllers.begin(), controllers.end(), ':', ',');
    std::string group = line.substr(path + 1);
    if (group.empty() || group.front() != '/') continue;
    if (group == "/") group.clear();
    if (controllers == ",,") {
      available = std::min(available, left_in_groups(kVersion2, root, group));
    } else if (controllers.find(",memory,") != std::string::npos) {
      available = std::min(available, left_in_groups(kVersion1, root, group));
    }
  }
  return available;
}

}  // namespace k3
