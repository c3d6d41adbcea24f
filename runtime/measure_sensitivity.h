// What it costs the model to have one trunk matrix in another form: KL of the logits, matrix by
// matrix, family by family, and for the whole trunk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/loaded_model.h"
#include "runtime/token_windows.h"
#include "schema/pack_reader.h"
#include "schema/sensitivity.h"

namespace k3 {

struct CandidatePack {
  std::string name;
  std::unique_ptr<PackReader> pack;
};

// Measures every trunk matrix that a candidate has in another format than `base`, each with all
// else as in the base. `base` is changed during the call and as before after it. Memory: the base,
// those matrices of all candidates, and one window's streams and logits. `on_progress` gets the
// share done, 0 to 1. Throws Error for a candidate that was not compiled from the base's
// checkpoint, has nothing to try, or has a matrix in a format that an earlier one has it in.
Sensitivity measure_sensitivity(LoadedModel& base, const std::vector<CandidatePack>& candidates,
                                const TokenWindows& windows,
                                const std::function<void(double)>& on_progress);

}  // namespace k3
