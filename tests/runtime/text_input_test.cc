#include "runtime/text_input.h"

#include <gtest/gtest.h>

#include <fstream>

#include "schema/error.h"

namespace k3 {
namespace {

std::string written(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string fault_of(const std::string& path) {
  try {
    read_text(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TextInput, APlainFileIsOneDocument) {
  const TextFile text = read_text(written("plain.txt", "one\ntwo\n"));
  EXPECT_EQ(text.name, "plain");
  EXPECT_EQ(text.documents, (std::vector<std::string>{"one\ntwo\n"}));
}

TEST(TextInput, JsonLinesHoldADocumentALine) {
  const TextFile text =
      read_text(written("lines.jsonl", "{\"text\": \"a\\nb\"}\n\n{\"id\": 3, \"text\": \"c\"}"));
  EXPECT_EQ(text.documents, (std::vector<std::string>{"a\nb", "c"}));
}

TEST(TextInput, AFaultyLineIsNamedByItsNumber) {
  EXPECT_NE(fault_of(written("cut.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b")).find("line 2"),
            std::string::npos);
  EXPECT_NE(fault_of(written("number.jsonl", "{\"text\": 7}")).find("line 1"), std::string::npos);
  EXPECT_NE(fault_of(written("other.jsonl", "{\"body\": \"a\"}")).find("line 1"),
            std::string::npos);
  EXPECT_NE(fault_of(written("array.jsonl", "[1]")).find("line 1"), std::string::npos);
}

TEST(TextInput, AFileWithoutTextIsRefused) {
  EXPECT_NE(fault_of(written("empty.txt", "")), "");
  EXPECT_NE(fault_of(written("empty.jsonl", "\n\n")), "");
  EXPECT_NE(fault_of(testing::TempDir() + "/absent.txt"), "");
}

}  // namespace
}  // namespace k3
