// A line chart as one SVG file, for reports of both programs that say more as a picture.
//
// No styles are left to the viewer: white ground, fixed colours that a colour-blind reader can tell
// apart, a legend, and ticks at round numbers. The same data give the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace k3 {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y; those that are not finite are left out
};

enum class Scale : uint8_t { kLinear, kLogarithmic };

struct ChartAxis {
  std::string label;  // with its unit
  Scale scale = Scale::kLinear;
};

// The chart, 800 x 480. On a logarithmic axis values that are not positive are left out. Without
// any point the axes run from 0 to 1, or from 1 to 10.
std::string line_chart(const std::string& title, const ChartAxis& x, const ChartAxis& y,
                       std::span<const ChartSeries> series);

// Writes the chart to `path`. Throws Error.
void write_chart(const std::string& path, const std::string& svg);

}  // namespace k3
