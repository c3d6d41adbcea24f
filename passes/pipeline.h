// The compiler's table of contents: which passes run, in which order, and what holds after each.
#pragma once

#include <span>
#include <string_view>

#include "passes/model.h"
#include "passes/options.h"
#include "passes/pass.h"
#include "passes/pass_results.h"
#include "passes/progress.h"

namespace k3 {

// All passes in the order in which they run.
std::span<const Pass> passes();

// Runs the passes over `model`, up to and including `stop_after`, or all when it is empty. Throws
// Error when a pass found problems, after every one of them went out as a line of progress (or
// stands in the message when there is one). Matrices are solved when there is a calibration and
// `solutions`; else they stay unsolved, which a plan that is not encoded may.
PassResults run_pipeline(Model& model, const Options& options, Progress& progress,
                         std::string_view stop_after = {},
                         const SolutionStore* solutions = nullptr);

}  // namespace k3
