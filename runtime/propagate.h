// k3exec propagate: how the error of a compressed pack travels through the depth of the model.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/error_growth.h"

namespace k3 {

struct PropagateOptions {
  std::string pack_path;
  std::string against_path;  // the original
  std::vector<std::string> text_paths;
  std::string backend = "reference";  // float activations; see error_growth.cc
  bool verify = true;
  int64_t tokens = 1024;          // of all documents together
  int64_t document_tokens = 256;  // of one; a longer document is cut
  ErrorGrowthOptions growth;
  std::string svg_path;  // empty: no picture
  bool json = false;
  bool quiet = false;
};

// Prints a table, or JSON; writes the picture. Throws Error.
void propagate(const PropagateOptions& options, std::ostream& out, std::ostream& progress);

}  // namespace k3
