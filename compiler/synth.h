// `k3c synth`: checkpoints in the shape of the real ones, from a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

namespace k3 {

struct SynthOptions {
  std::string out;  // the folder to make; may be there when it is empty
  std::string preset = "nano";
  std::optional<int64_t> layers;   // the first so many only; empty: all
  std::string layer_map;           // these layers instead, see synth_presets.h; empty: the preset's
  std::optional<int64_t> experts;  // the first so many of each layer; empty: all
  std::optional<int64_t> vocabulary;  // so many tokens; empty: the preset's
  bool headers_only = false;          // true headers over files of holes: any size, no space
  uint64_t seed = 0;
  int threads = 0;  // 0: one per core
  bool json = false;
  bool quiet = false;
};

// Writes a summary to `out`, progress to stderr. The bytes depend on what the model is and on the
// seed alone. The folder appears when it is complete. Throws Error; then there is nothing new.
void run_synth(const SynthOptions& options, std::ostream& out);

}  // namespace k3
