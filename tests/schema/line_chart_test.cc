#include "schema/line_chart.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

TEST(LineChart, PointsLieWhereTheTicksSay) {
  const ChartSeries series{"a", {{0, 0}, {3, 3}, {6, 6}}};
  const std::string svg = line_chart("t", {"x"}, {"y"}, std::span(&series, 1));
  // The plot is 540 x 390 at (70, 40); both axes run from 0 to 6.
  EXPECT_NE(svg.find("points=\"70.00,430.00 340.00,235.00 610.00,40.00 \""), std::string::npos)
      << svg;
}

TEST(LineChart, LogarithmicAxesRunOverWholeDecades) {
  const ChartSeries series{"a", {{2, 1}, {200, 1}}};
  const std::string svg = line_chart("t", {"x", Scale::kLogarithmic}, {"y"}, std::span(&series, 1));
  EXPECT_NE(svg.find(">1000</text>"), std::string::npos);
  EXPECT_NE(svg.find(">1</text>"), std::string::npos);
}

TEST(LineChart, ValuesThatHaveNoPlaceAreLeftOut) {
  const ChartSeries series{"a", {{1, NAN}, {2, INFINITY}, {3, -1}, {4, 1}}};
  const std::string svg = line_chart("t", {"x"}, {"y", Scale::kLogarithmic}, std::span(&series, 1));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(LineChart, NoPointsAndOnePointMakeAChartToo) {
  EXPECT_NE(line_chart("t", {"x"}, {"y"}, {}).find("</svg>"), std::string::npos);
  const ChartSeries series{"a", {{0, 0}}};
  EXPECT_EQ(line_chart("t", {"x"}, {"y"}, std::span(&series, 1)).find("nan"), std::string::npos);
}

TEST(LineChart, NamesCannotBreakTheFile) {
  const ChartSeries series{"a<b>&c", {{0, 0}}};
  EXPECT_NE(line_chart("t", {"x"}, {"y"}, std::span(&series, 1)).find("a&lt;b&gt;&amp;c"),
            std::string::npos);
}

TEST(LineChart, AFileThatCannotBeWrittenIsNamed) {
  EXPECT_NE(thrown_message([] { write_chart("/no/such/folder/a.svg", ""); }).find("a.svg"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
