// `k3c verify`: reads every byte of a pack and compares it with what the index says.
#pragma once

#include <string>

namespace k3 {

struct VerifyRequest {
  std::string pack;
  bool json = false;
  bool quiet = false;
};

// Prints one line to stdout when the pack is whole. Otherwise each fault is a line on stderr (all
// of them in the JSON) and the result is false. Throws Error for a pack that cannot be opened.
bool run_verify(const VerifyRequest& request);

}  // namespace k3
