// Solves the trunk's ternary matrices for what they read, and measures what every quantized one
// loses of its output.
#pragma once

#include <optional>
#include <vector>

#include "passes/matrix_loss.h"
#include "passes/model.h"
#include "passes/pass.h"
#include "schema/calibration.h"

namespace k3 {

// For each tensor of model.trunk whose format is ternary or ternary2: finds its solution in
// context.solutions, or solves it and keeps it there, and sets TrunkTensor::solution. Measures
// those that are int8 too. The result is by place in model.trunk, empty where nothing was measured.
// Throws Error when the calibration lacks a ternary matrix or was captured on other weights.
std::vector<std::optional<MatrixLoss>> solve_trunk(Model& model,
                                                   const CalibrationReader& calibration,
                                                   PassContext& context);

}  // namespace k3
