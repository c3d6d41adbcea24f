// k3exec eval: perplexity of a pack on texts, and its distance to another pack.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/evaluate.h"
#include "runtime/loaded_model.h"

namespace k3 {

struct EvalCommandOptions {
  LoadOptions load;
  std::vector<std::string> text_paths;
  std::string against_path;  // empty: no comparison
  std::string against_backend = "cpu";
  EvalOptions eval;
  // Prune plans to apply to the other pack and to measure likewise, for comparison: the receipt of
  // a pruned pack says how other choices of as many experts do.
  std::vector<std::string> beside_paths;
  std::optional<double> max_kl;  // nats, mean over all texts' positions
  std::string receipt_path;      // empty: none
  std::string trace_path;        // a routing trace of this pack on the texts; empty: none
  bool json = false;
  bool quiet = false;
};

// Prints a table, or with `json` the receipt's object; writes the receipt. Throws Error, also when
// the mean KL is above max_kl; the result is then printed and the receipt written all the same.
void eval(const EvalCommandOptions& options, std::ostream& out, std::ostream& progress);

}  // namespace k3
