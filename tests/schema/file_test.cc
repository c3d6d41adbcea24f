#include "schema/file.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <limits>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

TEST(File, ReadsAtAnyOffset) {
  const TempFolder folder;
  const File file(folder.write("f", std::string("0123456789")));
  std::array<std::byte, 4> bytes{};
  file.read_at(6, bytes);
  EXPECT_EQ(bytes[0], std::byte{'6'});
  EXPECT_EQ(bytes[3], std::byte{'9'});
}

TEST(File, ReadsBeyondTheEndAreErrorsWithoutOverflow) {
  const TempFolder folder;
  const File file(folder.write("f", std::string("0123456789")));
  std::array<std::byte, 4> bytes{};
  EXPECT_THROW(file.read_at(7, bytes), Error);
  EXPECT_THROW(file.read_at(-1, bytes), Error);
  EXPECT_THROW(file.read_at(std::numeric_limits<int64_t>::max() - 1, bytes), Error);
  EXPECT_THROW(file.read_at(std::numeric_limits<int64_t>::min(), bytes), Error);
}

TEST(File, AFileCutAfterOpeningIsAnErrorAndNotASignal) {
  const TempFolder folder;
  const std::string path = folder.write("f", std::string(10'000, 'x'));
  const File file(path);
  std::filesystem::resize_file(path, 100);
  std::vector<std::byte> bytes(5000);
  EXPECT_EQ(thrown_message([&] { file.read_at(0, bytes); }),
            path + ": ends at byte 100, it had 10000");
}

TEST(File, OffsetsBeyond4GiBWork) {
  const TempFolder folder;
  const std::string path = folder.write("f", std::string("x"));
  std::filesystem::resize_file(path, (uint64_t{5} << 30) + 1);  // sparse
  const File file(path);
  std::array<std::byte, 1> byte{std::byte{9}};
  file.read_at(int64_t{5} << 30, byte);
  EXPECT_EQ(byte[0], std::byte{0});
}

TEST(File, FoldersAndMissingFilesAreNamed) {
  const TempFolder folder;
  EXPECT_EQ(thrown_message([&] { File file(folder.path("")); }),
            folder.path("") + ": not a regular file");
  EXPECT_EQ(thrown_message([&] { File file(folder.path("none")); }),
            folder.path("none") + ": cannot open: No such file or directory");
}

TEST(File, ReadWholeFileHasALimit) {
  const TempFolder folder;
  const std::string path = folder.write("f", std::string("0123456789"));
  EXPECT_EQ(read_whole_file(path, 10).size(), 10u);
  EXPECT_THROW(read_whole_file(path, 9), Error);
}

}  // namespace
}  // namespace k3
