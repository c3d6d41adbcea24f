// `k3c explain`: which pass decided what about one tensor or expert, why, and from which bytes.
#pragma once

#include <string>

namespace k3 {

struct ExplainRequest {
  std::string pack;
  // A tensor by its name in the pack or in the checkpoint (with the family's prefix); an expert as
  // model.layers.3.experts.17, or by any of its tensors' names in the checkpoint.
  std::string name;
  bool json = false;
};

// Prints to stdout. Throws Error for a name that neither the pack nor what it left out has, with
// the nearest names that exist.
void run_explain(const ExplainRequest& request);

}  // namespace k3
