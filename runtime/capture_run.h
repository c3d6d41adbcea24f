// One capture: the stages of a layer-major pass with, after each layer, its Gram matrices.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/capture.h"
#include "runtime/capture_forecast.h"
#include "runtime/capture_journal.h"
#include "runtime/capture_text.h"
#include "runtime/layer_major.h"
#include "schema/calibration.h"
#include "schema/calibration_writer.h"
#include "schema/source_hashes.h"

namespace k3 {

class CaptureRun {
 public:
  // Opens packs and texts, and takes up what an earlier program left in the work folder. Throws
  // Error.
  CaptureRun(const CaptureOptions& options, std::ostream& progress);

  // Writes the calibration and the teacher and removes the work folder. Throws Error.
  void run();

  const CaptureText& text() const { return text_; }
  const CalibrationIndex& index() const { return index_; }  // complete after run()
  const CaptureCost& cost() const { return cost_; }
  int64_t resumed_layers() const { return resumed_layers_; }

 private:
  void check_options() const;
  void check_memory() const;
  uint64_t journal_key() const;
  std::vector<SharedInput> inputs_of(int64_t layer) const;
  int64_t input_bytes(int64_t layer) const;
  bool captures_all_layers() const { return end_layer_ == layers_; }
  bool fits_inputs(int64_t layer) const;
  std::unique_ptr<InputRecorder> make_recorder(int64_t layer, const std::string& name) const;
  std::string trace_part(int64_t layer) const;
  std::unique_ptr<TraceRecorder> make_trace(int64_t layer) const;
  void write_trace() const;
  void run_embedding();
  void run_layer(int64_t layer);
  void run_output();
  std::vector<CalibrationInput> write_inputs(int64_t layer, const InputRecorder& source,
                                             const InputRecorder* propagated);
  void report_layer(int64_t layer, double seconds) const;

  const CaptureOptions& options_;
  std::ostream& progress_;
  LayerMajorModel source_;
  SourceHashes source_hashes_;  // of source_
  std::unique_ptr<LayerMajorModel> propagated_;
  CaptureText text_;
  int64_t layers_;     // of the model
  int64_t end_layer_;  // the first that does not run
  int64_t memory_bytes_ = 0;
  std::string folder_;
  std::unique_ptr<CaptureJournal> journal_;
  std::unique_ptr<CalibrationWriter> writer_;
  CalibrationIndex index_;
  CaptureCost cost_;
  int64_t resumed_layers_ = 0;
};

}  // namespace k3
