#include "runtime/text_input.h"

#include <gtest/gtest.h>

#include "schema/error.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

std::string fault_of(const std::string& path) {
  try {
    read_text(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TextInput, APlainFileIsOneDocument) {
  const TempFolder folder;
  const TextFile text = read_text(folder.write("plain.txt", "one\ntwo\n"));
  EXPECT_EQ(text.name, "plain");
  EXPECT_EQ(text.documents, (std::vector<std::string>{"one\ntwo\n"}));
}

TEST(TextInput, JsonLinesHoldADocumentALine) {
  const TempFolder folder;
  const TextFile text = read_text(
      folder.write("lines.jsonl", "{\"text\": \"a\\nb\"}\n\n{\"id\": 3, \"text\": \"c\"}"));
  EXPECT_EQ(text.documents, (std::vector<std::string>{"a\nb", "c"}));
}

TEST(TextInput, AFaultyLineIsNamedByItsNumber) {
  const TempFolder folder;
  EXPECT_NE(fault_of(folder.write("cut.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b")).find("line 2"),
            std::string::npos);
  EXPECT_NE(fault_of(folder.write("number.jsonl", "{\"text\": 7}")).find("line 1"),
            std::string::npos);
  EXPECT_NE(fault_of(folder.write("other.jsonl", "{\"body\": \"a\"}")).find("line 1"),
            std::string::npos);
  EXPECT_NE(fault_of(folder.write("array.jsonl", "[1]")).find("line 1"), std::string::npos);
}

TEST(TextInput, AFileWithoutTextIsRefused) {
  const TempFolder folder;
  EXPECT_NE(fault_of(folder.write("empty.txt", "")), "");
  EXPECT_NE(fault_of(folder.write("empty.jsonl", "\n\n")), "");
  EXPECT_NE(fault_of(folder.path("absent.txt")), "");
}

}  // namespace
}  // namespace k3
