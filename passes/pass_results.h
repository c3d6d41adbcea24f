// What the passes produce beside the Model's plan fields: the decisions, the numbers that go into
// the pack's provenance, and the reports with their places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/decisions.h"
#include "passes/matrix_loss.h"
#include "schema/pack_index.h"
#include "schema/prune_plan.h"
#include "schema/source_hashes.h"

namespace k3 {

// The names of a pack's reports; the third is kSourceHashesReport.
inline constexpr const char* kDecisionsReport = "decisions";
inline constexpr const char* kSourcesReport = "sources";
inline constexpr const char* kTrunkErrorsReport = "trunk_errors";

struct PlannedReport {
  std::string name;
  std::vector<std::byte> stored;  // the extent's bytes; source_hashes is filled in by encode
  int64_t raw_bytes = 0;
  Extent extent;
};

struct PassResults {
  Decisions decisions;
  std::vector<PassRecord> passes;  // in the order run
  std::vector<PlannedReport> reports;
  std::vector<NamedLoss> losses;  // of quantized matrices, where calibration was given
  // What the pack was made from besides the checkpoint, for its provenance: names and hashes.
  std::vector<std::pair<std::string, std::string>> inputs;
  // Of --trunk auto: places in Model::trunk and hashes of the extents whose harm was measured.
  std::vector<std::pair<size_t, uint64_t>> measured_extents;
  std::vector<std::string> notes;  // sentences that compile prints below its table
  std::optional<PrunePlan> plan;   // by which prune_experts chose, if by any
  int64_t data_end_bytes = 0;      // where the last extent ends and the index may start; 0: not yet
};

}  // namespace k3
