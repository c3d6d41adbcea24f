#include "compiler/report.h"

#include <gtest/gtest.h>

#include "tests/tiny_pack.h"

namespace k3 {
namespace {

const ReportRow& row_of(const std::vector<ReportRow>& rows, Family family, Format format) {
  for (const ReportRow& row : rows) {
    if (row.family == family && row.format == format) return row;
  }
  static const ReportRow none;
  return none;
}

TEST(Report, CountsByFamilyAndFormat) {
  const auto rows = summarize(TinyPack().index.content);
  const ReportRow& head = row_of(rows, Family::kHead, Format::kInt8);
  EXPECT_EQ(head.tensors, 1);
  EXPECT_EQ(head.parameters, 40 * 32);
  EXPECT_EQ(head.bytes, (Blocks160{Format::kInt8, 40, 32}.extent_bytes()));
  EXPECT_DOUBLE_EQ(head.bits_per_weight(), 8.0 * static_cast<double>(head.bytes) / (40 * 32));
  EXPECT_EQ(row_of(rows, Family::kKda, Format::kF32).tensors, 1);  // A_log
}

TEST(Report, ATokenReadsOneRowOfTheEmbeddingAndItsExpertsOnly) {
  const auto rows = summarize(TinyPack().index.content);
  EXPECT_EQ(row_of(rows, Family::kEmbedding, Format::kBf16).bytes_per_token, 2 * 32);
  const ReportRow& experts = row_of(rows, Family::kRoutedExperts, Format::kMxfp4);
  EXPECT_EQ(experts.tensors, 9);
  EXPECT_EQ(experts.parameters, 3 * 3 * 64 * 288);
  EXPECT_DOUBLE_EQ(experts.bits_per_weight(), 4.25);
  EXPECT_EQ(experts.bytes_per_token, experts.bytes / 3 * 2);
  const ReportRow total = total_of(rows);
  EXPECT_GT(total.bytes, total.bytes_per_token);
}

TEST(Report, CountsAreReadable) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_count(1'560'860'324'864), "1,560,860,324,864");
}

}  // namespace
}  // namespace k3
