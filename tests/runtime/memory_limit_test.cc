#include "runtime/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/temp_folder.h"

namespace k3 {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

class MemoryLimit : public testing::Test {
 protected:
  void SetUp() override {
    say("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 10 kB\nMemAvailable: 2048 kB\n");
  }
  void say(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_.path(file);
    std::filesystem::create_directories(path.parent_path());
    root_.write(file, text);
  }
  void limit(const std::string& group, const std::string& max, const std::string& current,
             const std::string& stat = "") const {
    const std::string folder = "sys/fs/cgroup" + group + "/";
    say(folder + "memory.max", max);
    say(folder + "memory.current", current);
    if (!stat.empty()) say(folder + "memory.stat", stat);
  }
  int64_t available() const { return available_memory_bytes(root_.path("")); }

  TempFolder root_;
};

TEST_F(MemoryLimit, WithoutControlGroupsItIsMemAvailable) {
  EXPECT_EQ(available(), 2 * kMebibyte);
  EXPECT_GT(available_memory_bytes(), 0);
}

TEST_F(MemoryLimit, TheGroupsAroundTheOwnOneCountToo) {
  say("proc/self/cgroup", "0::/outer/inner\n");
  limit("/outer/inner", "max\n", "5\n");
  EXPECT_EQ(available(), 2 * kMebibyte);
  limit("/outer", "1000000\n", "400000\n");
  EXPECT_EQ(available(), 600'000);
  limit("/outer/inner", "500000\n", "400000\n");
  EXPECT_EQ(available(), 100'000);
  limit("/outer/inner", "500000\n", "500001\n");
  EXPECT_EQ(available(), 0);
}

TEST_F(MemoryLimit, InAContainerTheMountIsTheGroup) {
  say("proc/self/cgroup", "0::/docker/77\n");
  limit("", "300000\n", "100000\n");
  EXPECT_EQ(available(), 200'000);
}

TEST_F(MemoryLimit, PagesOfFilesAreFree) {
  say("proc/self/cgroup", "0::/\n");
  limit("", "1000000\n", "900000\n", "anon 200000\ninactive_file 500000\nactive_file 100000\n");
  EXPECT_EQ(available(), 700'000);
}

TEST_F(MemoryLimit, VersionOneIsUnderstood) {
  say("proc/self/cgroup", "8:cpu:/x\n7:hugetlb,memory:/job\n1:name=systemd:/y\n");
  const std::string folder = "sys/fs/cgroup/memory/job/";
  say(folder + "memory.limit_in_bytes", "1000000\n");
  say(folder + "memory.usage_in_bytes", "900000\n");
  say(folder + "memory.stat", "cache 5\ntotal_inactive_file 50000\n");
  EXPECT_EQ(available(), 150'000);
}

}  // namespace
}  // namespace k3
