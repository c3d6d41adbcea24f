// What must hold of a plan after every pass, whichever it was.
#pragma once

#include "passes/model.h"
#include "passes/pass_results.h"
#include "passes/problems.h"

namespace k3 {

// Adds a problem for every tensor, bank and extent of the plan that breaks a rule: a format that
// the source or the tensor does not allow, a layout that does not go with it, a bank with too few
// experts or one twice, and, once offsets are assigned, extents that overlap or are misaligned.
void check_plan(const Model& model, const PassResults& results, Problems& problems);

}  // namespace k3
