// `k3c compile`: checkpoint in, pack out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "passes/options.h"

namespace k3 {

struct CompileRequest {
  std::string checkpoint;  // a folder
  std::string output;      // the pack's path; may be empty where nothing is written
  Options options;
  int threads = 0;                      // 0: one per core
  std::optional<int64_t> memory_bytes;  // a ceiling: fewer workers run below it
  bool resume = false;     // take up what a killed compile left, and leave it when interrupted
  bool keep_work = false;  // leave solved matrices in OUT.work for a later compile
  bool dry_run = false;    // plan all, predict the file's size, write nothing
  std::string plan_out;    // where to write the prune plan, as soon as it is made; empty: nowhere
  std::string stop_after;  // a pass's name: print the plan as it stands then; empty: go on
  bool json = false;
  bool quiet = false;
};

// Results on stdout, progress on stderr. Throws Error; then the output is as it was before.
void run_compile(const CompileRequest& request);

}  // namespace k3
