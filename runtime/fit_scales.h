// Fits the block scales of a compressed model layer by layer to the outputs of the model it was
// compressed from, without a gradient through the model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/loaded_model.h"
#include "runtime/token_windows.h"

namespace k3 {

struct FittedMatrix {
  std::string name;
  int64_t rows = 0;
  int64_t blocks = 0;
  std::vector<float> scales;  // [rows, blocks]
  // Relative errors of its output in the compressed model, inherited ones included: |y - y_teacher|
  // over |y_teacher|, on the tokens of the fit.
  double error_before = 0;  // with its scales as they were, all earlier matrices fitted
  double error_after = 0;
};

// Every trunk matrix that `student` has in blocks160. A matrix reads what the student feeds it,
// with all that comes before it fitted, and is fitted to what the teacher's matrix gives at the
// same token in the teacher. `student` is changed during the call and as before after it.
// Memory: the streams of all tokens in both models, and one layer's sums. `on_progress` gets the
// share done.
std::vector<FittedMatrix> fit_scales(LoadedModel& student, LoadedModel& teacher,
                                     const TokenWindows& windows,
                                     const std::function<void(double)>& on_progress);

}  // namespace k3
