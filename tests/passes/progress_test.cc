#include "passes/progress.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

TEST(Progress, BytesHaveThreeFiguresAndDecimalUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(17'547'264), "17.5 MB");
  EXPECT_EQ(format_bytes(999'949'999), "1.00 GB");
  EXPECT_EQ(format_bytes(1'560'860'324'864), "1.56 TB");
}

TEST(Progress, SecondsBecomeMinutesAndHours) {
  EXPECT_EQ(format_seconds(4.24), "4.2 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(7500), "2 h 5 min");
}

TEST(Progress, QuietWritesNothing) {
  testing::internal::CaptureStderr();
  Progress progress(Progress::Style::kQuiet);
  progress.line("x");
  progress.start("work", 10);
  progress.advance(10);
  progress.finish();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, LinesSayWhatHowMuchAndHowFast) {
  testing::internal::CaptureStderr();
  Progress progress(Progress::Style::kLines);
  progress.start("encode", 2'000'000);
  progress.advance(2'000'000);
  progress.finish();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.rfind("encode: 2.00 MB in ", 0), 0u) << text;
  EXPECT_NE(text.find("/s\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace k3
