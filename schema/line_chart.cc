#include "schema/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr double kWidth = 800, kHeight = 480;
constexpr double kLeft = 70, kRight = 190, kTop = 40, kBottom = 50;  // margins
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;

// Okabe and Ito's palette for colour-blind readers, without yellow, which white swallows.
constexpr std::array<const char*, 7> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                 "#56B4E9", "#E69F00", "#000000"};

std::string number(double value, const char* form = "%.2f") {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), form, value);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char symbol : text) {
    switch (symbol) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      default:
        safe += symbol;
    }
  }
  return safe;
}

// One axis: from values to pixels.
class Ruler {
 public:
  Ruler(Scale scale, const std::vector<double>& values, double from_pixel, double to_pixel)
      : scale_(scale), from_pixel_(from_pixel), to_pixel_(to_pixel) {
    const bool logarithmic = scale == Scale::kLogarithmic;
    low_ = logarithmic ? 1 : 0;
    high_ = logarithmic ? 10 : 1;
    if (!values.empty()) {
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      low_ = *least;
      high_ = *most;
    }
    if (logarithmic) {
      low_ = std::pow(10, std::floor(std::log10(low_)));
      high_ = std::pow(10, std::ceil(std::log10(high_)));
      if (high_ <= low_) high_ = 10 * low_;
    } else {
      low_ = std::min(low_, 0.0);
      if (high_ <= low_) high_ = low_ + 1;
      step_ = round_step((high_ - low_) / 6);
      low_ = step_ * std::floor(low_ / step_);
      high_ = step_ * std::ceil(high_ / step_);
    }
  }

  double pixel(double value) const {
    const double share = scale_ == Scale::kLinear ? (value - low_) / (high_ - low_)
                                                  : std::log(value / low_) / std::log(high_ / low_);
    return from_pixel_ + share * (to_pixel_ - from_pixel_);
  }
  std::vector<double> ticks() const {
    std::vector<double> at;
    if (scale_ == Scale::kLinear) {
      const auto steps = static_cast<int>(std::lround((high_ - low_) / step_));
      for (int i = 0; i <= steps; ++i) at.push_back(low_ + i * step_);
    } else {
      for (double tick = low_; tick <= high_ * 1.001; tick *= 10) at.push_back(tick);
    }
    return at;
  }

 private:
  // 1, 2 or 5 times a power of ten, not below `least`.
  static double round_step(double least) {
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= least) return factor * power;
    }
    return 10 * power;
  }

  Scale scale_;
  double from_pixel_, to_pixel_;
  double low_ = 0, high_ = 1, step_ = 1;
};

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" stroke=\"" + colour + "\"/>\n";
}

}  // namespace

std::string line_chart(const std::string& title, const ChartAxis& x, const ChartAxis& y,
                       std::span<const ChartSeries> series) {
  const auto allowed = [](const ChartAxis& axis, double value) {
    return std::isfinite(value) && (axis.scale == Scale::kLinear || value > 0);
  };
  std::vector<double> xs, ys;
  for (const ChartSeries& one : series) {
    for (const auto& [px, py] : one.points) {
      if (!allowed(x, px) || !allowed(y, py)) continue;
      xs.push_back(px);
      ys.push_back(py);
    }
  }
  const Ruler across(x.scale, xs, kLeft, kLeft + kPlotWidth);
  const Ruler up(y.scale, ys, kTop + kPlotHeight, kTop);

  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"480\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"800\" height=\"480\" fill=\"white\"/>\n";
  svg += text_at(kLeft + kPlotWidth / 2, 24, "middle", title);
  for (const double tick : across.ticks()) {
    const double at = across.pixel(tick);
    svg += line(at, kTop, at, kTop + kPlotHeight, "#dddddd");
    svg += text_at(at, kTop + kPlotHeight + 16, "middle", number(tick, "%g"));
  }
  for (const double tick : up.ticks()) {
    const double at = up.pixel(tick);
    svg += line(kLeft, at, kLeft + kPlotWidth, at, "#dddddd");
    svg += text_at(kLeft - 6, at + 4, "end", number(tick, "%g"));
  }
  svg += text_at(kLeft + kPlotWidth / 2, kHeight - 12, "middle", x.label);
  svg += "<g transform=\"translate(16 " + number(kTop + kPlotHeight / 2) + ") rotate(-90)\">" +
         text_at(0, 0, "middle", y.label) + "</g>\n";
  for (size_t i = 0; i < series.size(); ++i) {
    const char* const colour = kColours[i % kColours.size()];
    svg += "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"";
    svg += colour;
    svg += "\" points=\"";
    for (const auto& [px, py] : series[i].points) {
      if (!allowed(x, px) || !allowed(y, py)) continue;
      svg += number(across.pixel(px)) + "," + number(up.pixel(py)) + " ";
    }
    svg += "\"/>\n";
    const double row = kTop + 10 + 18 * static_cast<double>(i);
    const double legend = kLeft + kPlotWidth + 10;
    svg += line(legend, row, legend + 18, row, colour);
    svg += text_at(legend + 24, row + 4, "start", series[i].name);
  }
  return svg + "</svg>\n";
}

void write_chart(const std::string& path, const std::string& svg) {
  std::ofstream out(path, std::ios::trunc);
  out << svg;
  out.close();
  if (!out) throw Error(path, ": cannot be written");
}

}  // namespace k3
