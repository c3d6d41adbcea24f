#include "compiler/nearest_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace k3 {

size_t edit_distance(std::string_view a, std::string_view b) {
  // row[j] is the distance of the part of `a` so far to the first j characters of `b`.
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names,
                                       size_t count) {
  std::vector<std::pair<size_t, size_t>> ranked;  // distance, number
  ranked.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) ranked.emplace_back(edit_distance(name, names[i]), i);
  const auto shown = static_cast<std::ptrdiff_t>(std::min(count, ranked.size()));
  std::partial_sort(ranked.begin(), ranked.begin() + shown, ranked.end());
  std::vector<std::string> nearest;
  for (auto one = ranked.begin(); one != ranked.begin() + shown; ++one) {
    nearest.push_back(names[one->second]);
  }
  return nearest;
}

}  // namespace k3
