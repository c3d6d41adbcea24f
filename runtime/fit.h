// k3exec fit: block scales that make a compressed pack's layers give what its teacher's give.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/loaded_model.h"
#include "runtime/token_windows.h"

namespace k3 {

struct FitOptions {
  LoadOptions load;  // the pack to tune
  std::string teacher_path;
  std::vector<std::string> text_paths;
  WindowOptions windows{.window_tokens = 256, .max_tokens = 8192};
  std::string output_path;  // the .k3tune file
  bool json = false;
  bool quiet = false;
};

// Fits on the fit half of the texts, writes the file for `k3c compile --tuned` and prints what it
// did to the outputs. Throws Error, also when the packs cannot be compared.
void fit(const FitOptions& options, std::ostream& out, std::ostream& progress);

}  // namespace k3
