#include "compiler/report_text.h"

#include <gtest/gtest.h>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

TEST(ReportText, HasLinesAndFieldsAndNothingElseThatATerminalObeys) {
  const TempFolder folder;
  TinyPack tiny;
  PackReport& report = tiny.index.provenance.reports[0];  // stored as it is
  const std::span<std::byte> bytes = tiny.bytes_of(report.extent);
  const auto text_with = [&](char third) {
    std::fill(bytes.begin(), bytes.end(), std::byte{'a'});
    bytes[1] = std::byte{'\t'};
    bytes[2] = std::byte{'\n'};
    bytes[3] = static_cast<std::byte>(third);
    tiny.rehash(report.extent);
    return report_text(PackReader(folder.write("p", tiny.image())), report.name);
  };
  EXPECT_EQ(text_with('b').substr(0, 5), "a\t\nba");
  for (const char control : {'\x1b', '\x7f'}) {
    EXPECT_EQ(thrown_message([&] { text_with(control); }),
              folder.path("p") + ": report source_hashes: byte 3 is control character " +
                  std::to_string(control) + ", expected text");
  }
}

}  // namespace
}  // namespace k3
