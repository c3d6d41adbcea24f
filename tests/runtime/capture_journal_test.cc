#include "runtime/capture_journal.h"

#include <gtest/gtest.h>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

CapturedStage made_stage(int64_t layer) {
  CapturedStage stage{.layer = layer, .end_bytes = 4096 * (layer + 2)};
  CalibrationInput input;
  input.name = "layers." + std::to_string(layer) + ".ffn";
  input.width = 2;
  input.matrices = {{"m\t\"" + std::to_string(layer), 7}};
  input.steps = {4096, 11, 12};
  input.sums[0].gram = {{8192, 13, 14}};
  if (layer >= 0) stage.inputs = {input, input};
  return stage;
}

TEST(CaptureJournal, AReopenedJournalHasItsStages) {
  const TempFolder folder;
  for (int64_t layer = -1; layer < 2; ++layer) {
    CaptureJournal journal(folder.path("journal"), 5);
    EXPECT_EQ(std::ssize(journal.stages()), layer + 1);
    journal.add(made_stage(layer));
  }
  const CaptureJournal journal(folder.path("journal"), 5);
  ASSERT_EQ(journal.stages().size(), 3u);
  const CapturedStage& last = journal.stages().back();
  EXPECT_EQ(last.layer, 1);
  EXPECT_EQ(last.end_bytes, 3 * 4096);
  ASSERT_EQ(last.inputs.size(), 2u);
  EXPECT_EQ(last.inputs[1].matrices[0].name, "m\t\"1");
  EXPECT_EQ(last.inputs[1].sums[0].gram[0], (Extent{8192, 13, 14}));
}

TEST(CaptureJournal, ATornOrDamagedLineEndsTheListAndIsWrittenAnew) {
  const TempFolder folder;
  const std::string path = folder.path("journal");
  {
    CaptureJournal journal(path, 5);
    for (int64_t layer = -1; layer < 2; ++layer) journal.add(made_stage(layer));
  }
  const std::vector<std::byte> whole = file_bytes(path);
  for (size_t i = 28; i < whole.size(); i += 7) {
    std::vector<std::byte> bytes(whole.begin(), whole.begin() + static_cast<int64_t>(i));
    folder.write("journal", bytes);
    {
      CaptureJournal torn(path, 5);
      EXPECT_LT(torn.stages().size(), 3u);
      for (int64_t layer = std::ssize(torn.stages()) - 1; layer < 2; ++layer) {
        torn.add(made_stage(layer));
      }
    }
    EXPECT_EQ(file_bytes(path), whole);
    bytes = whole;
    bytes[i] ^= std::byte{1};
    folder.write("journal", bytes);
    const std::string message =
        thrown_message([&] { EXPECT_LT(CaptureJournal(path, 5).stages().size(), 3u); });
    EXPECT_TRUE(message == "no error" || i < 45) << message;
  }
}

TEST(CaptureJournal, AnotherCapturesFolderIsLeftAlone) {
  const TempFolder folder;
  CaptureJournal first(folder.path("journal"), 5);
  EXPECT_NE(thrown_message([&] {
              CaptureJournal(folder.path("journal"), 5);
            }).find("another capture is writing here"),
            std::string::npos);
  { CaptureJournal other(folder.path("other"), 6); }
  EXPECT_NE(thrown_message([&] {
              CaptureJournal(folder.path("other"), 7);
            }).find("belongs to a capture of other packs, texts or options"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
