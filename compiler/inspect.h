// `k3c inspect`: what a pack says about itself. Reads the index, no weights.
#pragma once

#include <string>

namespace k3 {

struct InspectRequest {
  std::string pack;
  std::string report;  // print this report's content instead; empty: the summary
  bool json = false;
};

// Prints to stdout. Throws Error for a pack that a reader refuses.
void run_inspect(const InspectRequest& request);

}  // namespace k3
