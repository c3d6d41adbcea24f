// The names that somebody who mistyped one may have meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace k3 {

// Edits (a character inserted, left out or replaced) that turn one name into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The `count` names with the least distance to `name`, nearest first, the earlier one first where
// two are equally near.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names,
                                       size_t count);

}  // namespace k3
