#include "kernels/instruction_set.h"

#include <array>
#include <cstdint>

#include "schema/highway_targets.h"
//
#include "hwy/targets.h"
#include "schema/error.h"

namespace k3 {
namespace {

struct InstructionSet {
  const char* name;
  int64_t target;
};

// Best first within an architecture. Highway's bits are ordered alike: a lower bit is better.
constexpr std::array<InstructionSet, 7> kInstructionSets = {{
    {"avx512vnni", HWY_AVX3_DL},
    {"avx512", HWY_AVX3},
    {"avx2", HWY_AVX2},
    {"sse4", HWY_SSE4},
    {"sve", HWY_SVE},
    {"neon", K3_NEON},
    {"portable", 0},
}};

const InstructionSet* chosen = nullptr;  // null: the best

}  // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const InstructionSet& set : kInstructionSets) {
    if (set.target == 0 || (hwy::SupportedTargets() & set.target) != 0)
      names.emplace_back(set.name);
  }
  return names;
}

void force_instruction_set(std::string_view name) {
  for (const InstructionSet& set : kInstructionSets) {
    if (set.name != name) continue;
    if (set.target != 0 && (hwy::SupportedTargets() & set.target) == 0) break;
    // Worse ones stay allowed, for files that have no copy for this one.
    const int64_t allowed = set.target == 0 ? 0 : hwy::SupportedTargets() & ~(set.target - 1);
    hwy::GetChosenTarget().Update(allowed);
    chosen = &set;
    return;
  }
  std::string names;
  for (const std::string& known : instruction_sets()) {
    names.append(names.empty() ? "" : ", ").append(known);
  }
  throw Error("--isa is ", name, ", this machine has ", names);
}

std::string chosen_instruction_set() {
  return chosen != nullptr ? chosen->name : instruction_sets().front();
}

}  // namespace k3
