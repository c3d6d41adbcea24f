// The report trunk_errors of a pack, for people and for programs.
#pragma once

#include <ostream>

#include "schema/json_writer.h"
#include "schema/pack_reader.h"

namespace k3 {

// A line per family and format: matrices, and the root mean square of their errors on fit and
// select documents and of their bounds. Nothing when the pack has no such report. Throws Error when
// the report is damaged.
void print_losses(const PackReader& pack, std::ostream& out);

// An array with an object per matrix, its members named as the report's columns; numbers are
// numbers, what was not measured is null. Empty when there is no report.
void write_losses(const PackReader& pack, JsonWriter& json);

}  // namespace k3
