// What a capture has finished, kept in its work folder so that a killed one goes on.
//
// A line per stage: the embedding, then each layer. A line is added when all that the stage wrote
// is on disk, and carries a hash of itself, so one that was torn ends the list and its stage runs
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "schema/calibration.h"
#include "schema/output_file.h"

namespace k3 {

struct CapturedStage {
  int64_t layer = 0;                          // -1: the embedding
  int64_t end_bytes = 0;                      // of the calibration that grows
  std::vector<CalibrationInput> inputs = {};  // that the stage added to it
};

class CaptureJournal {
 public:
  // Opens or creates the journal at `path`. `key` is a hash of all that decides what a capture
  // writes. Throws Error when another program has it open, or when it was kept for another key.
  CaptureJournal(const std::string& path, uint64_t key);

  // The stages that were finished before, in order from the embedding on.
  const std::vector<CapturedStage>& stages() const { return stages_; }

  // Returns when the line is on disk. Throws Error.
  void add(const CapturedStage& stage);

 private:
  bool read_line(std::string_view line);

  std::unique_ptr<OutputFile> file_;
  int64_t end_bytes_ = 0;
  std::vector<CapturedStage> stages_;
};

}  // namespace k3
