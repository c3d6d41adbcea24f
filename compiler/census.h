// k3c census: what is in a checkpoint, from its headers alone.
#pragma once

#include <ostream>
#include <string>

namespace k3 {

struct CensusOptions {
  std::string
      path;  // a checkpoint folder, or one .safetensors file, of which the inventory is given
  bool json = false;
};

// Writes the reading to `out`. Throws Error when the checkpoint breaks any rule: what is counted
// has been checked.
void run_census(const CensusOptions& options, std::ostream& out);

}  // namespace k3
