#include "runtime/read_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "runtime/expert_slots.h"
#include "schema/extent.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

std::vector<std::byte> pattern(int64_t bytes) {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  uint32_t state = 1;
  for (std::byte& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

// Reads whole pages but the last, which ends where the file ends, and compares.
void expect_reads(ReadQueue& queue, const std::vector<std::byte>& data, int64_t length_bytes) {
  const auto count = std::ssize(data) / kExtentAlignment;
  const ExpertSlots memory(count, length_bytes);
  std::map<int64_t, int64_t> lengths;
  const auto take = [&](const ReadQueue::Done& read) {
    EXPECT_EQ(read.fault, "");
    const std::byte* got = memory.at(read.tag);
    EXPECT_TRUE(
        std::equal(got, got + lengths.at(read.tag), data.begin() + read.tag * kExtentAlignment))
        << "page " << read.tag;
    lengths.erase(read.tag);
  };
  for (int64_t page = 0; page < count; ++page) {
    const int64_t offset = page * kExtentAlignment;
    lengths[page] = std::min(length_bytes, std::ssize(data) - offset);
    if (queue.in_flight() == queue.depth()) take(*queue.next(true));
    queue.start(page, offset, lengths[page], memory.at(page));
  }
  queue.submit();
  while (queue.in_flight() > 0) take(*queue.next(true));
  EXPECT_TRUE(lengths.empty());
  EXPECT_FALSE(queue.next(true).has_value());
}

class EveryReadQueue : public testing::TestWithParam<std::tuple<ReadPath, bool>> {
 protected:
  ReadPath path() const { return std::get<0>(GetParam()); }
  bool ring() const { return std::get<1>(GetParam()); }
};

TEST_P(EveryReadQueue, ReadsWhatTheFileHas) {
  const TempFolder folder;
  const std::vector<std::byte> data = pattern(40 * kExtentAlignment + 77);
  const File file(folder.write("data", data));
  ReadQueue queue(file, path(), 5, ring());
  EXPECT_EQ(queue.has_ring() || ring(), ring());
  for (const int64_t length : {int64_t{1}, int64_t{4000}, 3 * kExtentAlignment + 5}) {
    expect_reads(queue, data, length);
  }
}

TEST_P(EveryReadQueue, AFileThatBecameShorterIsAFaultWithItsName) {
  const TempFolder folder;
  const std::string path_name = folder.write("data", pattern(8 * kExtentAlignment));
  const File file(path_name);
  ReadQueue queue(file, path(), 4, ring());
  std::filesystem::resize_file(path_name, static_cast<size_t>(5 * kExtentAlignment + 100));
  const ExpertSlots memory(2, 2 * kExtentAlignment);
  queue.start(0, 5 * kExtentAlignment, 2 * kExtentAlignment, memory.at(0));
  queue.start(1, kExtentAlignment, 2 * kExtentAlignment, memory.at(1));
  std::map<int64_t, std::string> faults;
  for (int i = 0; i < 2; ++i) {
    const ReadQueue::Done read = *queue.next(true);
    faults[read.tag] = read.fault;
  }
  EXPECT_EQ(faults[0], path_name + ": ends at byte 20580, it had 32768");
  EXPECT_EQ(faults[1], "");
}

TEST_P(EveryReadQueue, EndsOnlyWhenNothingIsWrittenAnyMore) {
  const TempFolder folder;
  const std::vector<std::byte> data = pattern(64 * kExtentAlignment);
  const File file(folder.write("data", data));
  const ExpertSlots memory(1, std::ssize(data));
  {
    ReadQueue queue(file, path(), 1, ring());
    queue.start(0, 0, std::ssize(data), memory.at(0));
  }
  EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.at(0)));
}

INSTANTIATE_TEST_SUITE_P(Paths, EveryReadQueue,
                         testing::Combine(testing::Values(ReadPath::kDirect, ReadPath::kBuffered),
                                          testing::Bool()));

// Direct reads work there on some kernels and not on others.
TEST(ReadQueue, ReadsFromAFilesystemInMemory) {
  const std::filesystem::path shared = "/dev/shm";
  if (!std::filesystem::is_directory(shared)) GTEST_SKIP() << "there is no /dev/shm";
  const std::filesystem::path path = shared / ("k3-read-queue-test-" + std::to_string(::getpid()));
  const std::vector<std::byte> data = pattern(9 * kExtentAlignment);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data.data()), std::ssize(data));
  const File file(path);
  std::filesystem::remove(path);
  ReadQueue queue(file, ReadPath::kDirect, 3);
  expect_reads(queue, data, kExtentAlignment);
}

TEST(ReadQueue, AFileTooSmallToTryDirectReadsOnIsBuffered) {
  const TempFolder folder;
  const std::vector<std::byte> data = pattern(kExtentAlignment + 9);
  const File file(folder.write("data", data));
  ReadQueue queue(file, ReadPath::kDirect, 3);
  EXPECT_FALSE(queue.is_direct());
  EXPECT_EQ(describe_reads(queue).rfind("buffered, ", 0), 0u);
  expect_reads(queue, data, 50);
}

}  // namespace
}  // namespace k3
