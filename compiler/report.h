// The table that compile and inspect print: what a pack holds, by family and format.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "schema/family.h"
#include "schema/format.h"
#include "schema/json_writer.h"
#include "schema/memory_need.h"
#include "schema/pack_index.h"

namespace k3 {

struct ReportRow {
  Family family = Family::kNorm;
  Format format = Format::kBf16;
  int64_t tensors = 0;     // of the checkpoint: an expert counts as three matrices
  int64_t parameters = 0;  // weights, without scales
  int64_t bytes = 0;       // stored in the pack, scales and padding inside extents included
  // What one decoded token reads: of the embedding one row, of a bank the experts it is routed to,
  // of everything else all.
  int64_t bytes_per_token = 0;

  double bits_per_weight() const {
    return parameters == 0 ? 0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
  }
};

// One row per family and format that occurs, in the order of the enumerators.
std::vector<ReportRow> summarize(const PackContent& content);

// The rows' sum; its family and format mean nothing.
ReportRow total_of(const std::vector<ReportRow>& rows);

void print_table(const std::vector<ReportRow>& rows, std::ostream& out);

// An array of objects, one per row, as the value of the key that was just written.
void write_rows(const std::vector<ReportRow>& rows, JsonWriter& json);

// What running the pack takes: one line, or an object as the value of the key that was just
// written.
void print_memory(const MemoryNeed& need, std::ostream& out);
void write_memory(const MemoryNeed& need, JsonWriter& json);

// "1,234,567".
std::string format_count(int64_t count);

}  // namespace k3
