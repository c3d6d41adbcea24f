// k3exec run: generates text from a pack.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/generate.h"
#include "runtime/loaded_model.h"

namespace k3 {

struct RunOptions {
  LoadOptions load;
  GenerateOptions generate;
  std::optional<std::string> prompt;  // at most one of prompt, prompt_path and ids
  std::optional<std::string> prompt_path;
  std::optional<std::vector<int32_t>> ids;  // fed as they are: no beginning-of-sequence token
  bool chat = false;                        // the prompt is a user's message in K3's message format
  std::optional<std::string> system;        // a system message before it
  bool instruct = false;                    // answer without a think channel
  std::string dump_path;                    // empty: none
  std::string trace_path;                   // a routing trace to write; empty: none
  std::string save_state_path;              // empty: none
  std::string load_state_path;              // empty: start from nothing
  bool json = false;
};

// Streams text to `out`, or with `json` writes one object at the end. Throws Error.
void run(const RunOptions& options, std::ostream& out);

}  // namespace k3
