// k3c census: what is in a checkpoint, from its headers alone.
#pragma once

#include <ostream>
#include <string>

namespace k3 {

struct CensusOptions {
  // A checkpoint folder, or one .safetensors file, of which the inventory is given; or the URL of
  // either, of which headers alone are fetched.
  std::string path;
  bool json = false;
};

// Writes the reading to `out`. HF_TOKEN in the environment is sent to the host of a URL. Throws
// Error when the checkpoint breaks any rule: what is counted has been checked.
void run_census(const CensusOptions& options, std::ostream& out);

}  // namespace k3
