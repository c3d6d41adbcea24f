// Counts and byte sizes as people read them in tables and progress lines.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace k3 {

// 1234567 -> "1,234,567".
inline std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = text.size(); i > first + 3;) {
    i -= 3;
    text.insert(i, 1, ',');
  }
  return text;
}

// With `decimals` digits behind the point, whatever the locale of a stream.
inline std::string fixed(double number, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, number);
  return text.data();
}

inline std::string percent(double share) {
  return fixed(100 * share, 1) + " %";
}

// In the shortest form that reads back to the same double: 2 -> "2", 0.1 -> "0.1".
inline std::string shortest(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number);
  return {text.data(), end.ptr};
}

// In decimal units, as disks are sold: 1560860324864 -> "1.56 TB".
inline std::string sized(double value) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  constexpr double kStep = 1000;
  if (value < kStep) return fixed(value, 0) + " B";
  size_t unit = 0;
  // 999.995 and more would be printed as 1000.00.
  while (value >= 999.995 && unit + 1 < kUnits.size()) {
    value /= kStep;
    ++unit;
  }
  return fixed(value, 2).append(1, ' ').append(kUnits[unit]);
}
inline std::string sized(int64_t bytes) {
  return sized(static_cast<double>(bytes));
}

}  // namespace k3
