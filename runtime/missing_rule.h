// What happens when the router wants an expert that the pack does not hold among its others:
// because it was compiled without it, because it lies in the cold section, or because a prune plan
// drops it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace k3 {

enum class MissingRule : uint8_t {
  kNextBest,  // it is not chosen: the next best is, and weights are normalised over those chosen
  kFetch,     // it is chosen and read: from the cold section, or wherever the plan found it
  kDrop       // it is chosen and adds nothing; the others keep the weights they have beside it
};

inline constexpr std::array<std::string_view, 3> kMissingRuleNames = {"next-best", "fetch", "drop"};

}  // namespace k3
