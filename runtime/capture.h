// k3exec capture: what every trunk matrix reads on calibration text, and what the model predicts.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace k3 {

struct CaptureOptions {
  std::string pack_path;
  std::vector<std::string> text_paths;
  std::string calibration_path;  // empty: none
  std::string propagated_path;  // the compressed model whose inputs are captured; empty: the pack's
  std::string teacher_path;     // empty: none
  int64_t top_k = 64;           // of the teacher
  std::string trace_path = {};  // of the pack's routing; empty: none
  int64_t window_tokens = 0;    // documents are cut into windows of so many; 0: left whole
  int64_t first_layer = 0;      // whose inputs are captured
  std::optional<int64_t> last_layer = {};  // the last one that runs; empty: all, and the head
  std::optional<double> memory_gb = {};    // empty: what memory allows
  std::string backend = "cpu";
  int64_t chunk_tokens = 256;  // most tokens that pass a layer together; changes no result
  bool verify = true;
  std::vector<std::string> merge_paths = {};  // add these into calibration_path instead
  bool json = false;
  bool quiet = false;
};

// Writes the files and prints what was captured, what it took, and what the full-size K3 would
// take. A capture that was killed leaves its work folder, OUT.work beside the first output, and the
// same command goes on from the last finished layer. Throws Error.
void capture(const CaptureOptions& options, std::ostream& out, std::ostream& progress);

}  // namespace k3
