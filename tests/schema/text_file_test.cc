#include "schema/text_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

TEST(TextFile, ReplacesAnOlderOneAndLeavesNothingElse) {
  const TempFolder folder;
  const std::string path = folder.write("a", std::string("a longer text than the next"));
  write_text_file(path, "new\n");
  const std::vector<std::byte> bytes = file_bytes(path);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "new\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST(TextFile, WhatCannotBeWrittenIsAnErrorThatNamesIt) {
  const TempFolder folder;
  const std::string path = folder.path("no folder/a");
  EXPECT_NE(thrown_message([&] { write_text_file(path, "x"); }).find(path + ": cannot write: "),
            std::string::npos);
}

}  // namespace
}  // namespace k3
