// k3exec tune: block scales and norm gains of a compressed pack, trained end to end against the
// logits of its teacher.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/tune_parameters.h"

namespace k3 {

struct TuneOptions {
  std::string pack_path;
  std::string teacher_path;
  std::string start_path;  // a .k3tune file to go on from; empty: what the pack has
  std::vector<std::string> text_paths;
  std::string backend = "cpu";
  int64_t window_tokens = 256;
  int64_t check_tokens = 8192;  // of the select half, to measure on before and after
  TuneSchedule schedule;
  bool train_codes = false;
  std::string output_path;  // the .k3tune file
  bool verify = true;
  bool json = false;
  bool quiet = false;
};

// Trains on the fit half of the texts, writes the file for `k3c compile --tuned`, now and then on
// the way too, and prints the KL on the select half before and after. Throws Error, also when the
// packs cannot be compared.
void tune(const TuneOptions& options, std::ostream& out, std::ostream& progress);

}  // namespace k3
