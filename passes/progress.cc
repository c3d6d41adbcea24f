#include "passes/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace k3 {
namespace {

using namespace std::chrono_literals;

constexpr auto kBarInterval = 100ms;  // fluent to the eye, nothing to the work
constexpr auto kLineInterval = 10s;   // a log of an hour stays readable
constexpr int kBarCells = 30;

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string format_rate(int64_t bytes, double seconds) {
  if (seconds <= 0) return "";
  return format_bytes(static_cast<int64_t>(static_cast<double>(bytes) / seconds)) + "/s";
}

}  // namespace

Progress::Style Progress::style_for_stderr(bool quiet) {
  if (quiet) return Style::kQuiet;
  return ::isatty(STDERR_FILENO) == 1 ? Style::kBar : Style::kLines;
}

void Progress::line(std::string_view text) {
  if (style_ == Style::kQuiet) return;
  const std::scoped_lock lock(drawing_);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

void Progress::start(std::string_view what, int64_t total_bytes) {
  what_ = what;
  total_bytes_ = total_bytes;
  done_bytes_ = 0;
  started_ = Clock::now();
  next_drawing_ = started_ + (style_ == Style::kBar ? Clock::duration(kBarInterval)
                                                    : Clock::duration(kLineInterval));
}

void Progress::advance(int64_t bytes) {
  done_bytes_ += bytes;
  if (style_ == Style::kQuiet) return;
  const std::unique_lock lock(drawing_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // somebody draws right now, and draws the newer number
  const auto now = Clock::now();
  if (now < next_drawing_) return;
  next_drawing_ = now + (style_ == Style::kBar ? Clock::duration(kBarInterval)
                                               : Clock::duration(kLineInterval));
  draw(now);
}

void Progress::draw(Clock::time_point now) {
  const int64_t done = done_bytes_;
  const double elapsed = seconds_between(started_, now);
  const double share =
      total_bytes_ > 0
          ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total_bytes_))
          : 1.0;
  const std::string left = share > 0 ? format_seconds(elapsed * (1 - share) / share) : "?";
  const std::string rate = format_rate(done, elapsed);
  if (style_ == Style::kBar) {
    const auto cells = static_cast<size_t>(share * kBarCells);
    const std::string bar = std::string(cells, '#') + std::string(kBarCells - cells, '.');
    std::fprintf(stderr, "\r%s [%s] %3.0f %%  %s  %s left\033[K", what_.c_str(), bar.c_str(),
                 share * 100, rate.c_str(), left.c_str());
    std::fflush(stderr);
  } else {
    std::fprintf(stderr, "%s: %.0f %%, %s, %s left\n", what_.c_str(), share * 100, rate.c_str(),
                 left.c_str());
  }
}

void Progress::finish() {
  if (style_ == Style::kQuiet) return;
  const double elapsed = seconds_between(started_, Clock::now());
  if (style_ == Style::kBar) std::fputs("\r\033[K", stderr);
  line(what_ + ": " + format_bytes(done_bytes_) + " in " + format_seconds(elapsed) + ", " +
       format_rate(done_bytes_, elapsed));
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, kUnits[unit]);
  return text.data();
}

std::string format_seconds(double seconds) {
  std::array<char, 32> text{};
  if (seconds < 60) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
    return text.data();
  }
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const bool hours = whole >= 3600;
  const auto larger = static_cast<long long>(hours ? whole / 3600 : whole / 60);
  const auto smaller = static_cast<long long>(hours ? whole % 3600 / 60 : whole % 60);
  std::snprintf(text.data(), text.size(), hours ? "%lld h %lld min" : "%lld min %lld s", larger,
                smaller);
  return text.data();
}

}  // namespace k3
