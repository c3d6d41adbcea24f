// k3exec sensitivity: which trunk matrices a model can afford to have in a smaller form.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/loaded_model.h"
#include "runtime/token_windows.h"

namespace k3 {

struct SensitivityOptions {
  LoadOptions load;  // the base
  std::vector<std::string> candidate_paths;
  std::vector<std::string> text_paths;
  WindowOptions windows;
  std::string output_path;  // the .k3sens file
  bool json = false;
  bool quiet = false;
};

// Measures on the select half of the texts, writes the file and prints a table, or with `json` the
// file's content. Throws Error.
void sensitivity(const SensitivityOptions& options, std::ostream& out, std::ostream& progress);

}  // namespace k3
