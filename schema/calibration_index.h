// The index of a .k3cal file: JSON, so that any program can look into one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "schema/calibration.h"
#include "schema/pack_frame.h"

namespace k3 {

inline constexpr FrameKind kCalibrationFrame = {
    {0x89, 'K', '3', 'C', 'A', 'L', 'B', '\n'}, 1, "calibration"};

std::string encode_calibration_index(const CalibrationIndex& index);
// One input of it, on one line: what a capture's journal keeps of a finished layer.
std::string encode_calibration_input(const CalibrationInput& input);

// Parse what these wrote. `path` is for messages. Throw Error for anything else; whether the parts
// fit together is for check_calibration_index.
CalibrationIndex parse_calibration_index(const std::string& path, std::string_view json);
CalibrationInput parse_calibration_input(const std::string& path, std::string_view json);

// Ranges and counts, names that occur twice, documents in both halves or in the wrong one, and that
// the extents lie one behind the other from the first page to the index at `index_offset_bytes`.
// Throws Error with the first fault.
void check_calibration_index(const std::string& path, const CalibrationIndex& index,
                             int64_t index_offset_bytes);

}  // namespace k3
