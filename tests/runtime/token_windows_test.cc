#include "runtime/token_windows.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/runtime/nano_tokenizer.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

const std::vector<std::string> kTexts = {
    K3_SOURCE_DIR "/examples/nano/text/calibration-prose.jsonl",
    K3_SOURCE_DIR "/examples/nano/text/calibration-code.jsonl"};

TEST(TokenWindows, AreAsManyAsAllowedAndAllOfOneLength) {
  const TokenWindows windows =
      read_windows(kTexts, CalibrationHalf::kSelect, nano_tokenizer(), {100, 1050});
  ASSERT_EQ(windows.windows.size(), 10U);
  for (const auto& window : windows.windows) EXPECT_EQ(window.size(), 100U);
  EXPECT_EQ(windows.tokens(), 1000);
  EXPECT_EQ(windows.texts.size(), 2U);
}

TEST(TokenWindows, OfTheTwoHalvesShareNone) {
  const WindowOptions all{64, int64_t{1} << 30};
  std::set<std::vector<int32_t>> fit;
  for (auto& window : read_windows(kTexts, CalibrationHalf::kFit, nano_tokenizer(), all).windows) {
    fit.insert(window);
  }
  for (const auto& window :
       read_windows(kTexts, CalibrationHalf::kSelect, nano_tokenizer(), all).windows) {
    EXPECT_FALSE(fit.contains(window));
  }
}

TEST(TokenWindows, NoneComesFromAHeldOutText) {
  EXPECT_NE(thrown_message([] {
              read_windows({K3_SOURCE_DIR "/examples/nano/text/heldout-prose.jsonl"},
                           CalibrationHalf::kFit, nano_tokenizer(), {});
            }).find("held-out"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
