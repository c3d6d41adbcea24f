// --trunk auto: the format of every trunk matrix by what it costs the model, within a budget.
#pragma once

#include "passes/model.h"
#include "passes/pass.h"

namespace k3 {

// Gives every trunk tensor that may be quantized the format that context.options' budget and the
// .k3sens file have for it, and writes down why. Throws Error for a file that was not measured on
// these weights or lacks a matrix, and, naming the best point there is, when budget and bound
// cannot both be met.
void choose_budgeted_formats(Model& model, PassContext& context);

}  // namespace k3
