// `k3c trace merge`: several traces of one model as one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace k3 {

// Appends the blocks of `traces`, in order, without touching what is in them. What the merged trace
// has is what all have: throws Error when they differ in model, layers or what was recorded, and
// when one is cut or damaged. Returns the number of tokens.
int64_t merge_traces(const std::vector<std::string>& traces, const std::string& output);

}  // namespace k3
