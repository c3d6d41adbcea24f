// Calibration texts cut into the windows that measurements and fits run on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer.h"
#include "schema/calibration.h"

namespace k3 {

struct TokenWindows {
  std::vector<CalibrationText> texts;
  std::vector<std::vector<int32_t>> windows;  // token ids; each is run from a fresh state

  int64_t tokens() const;
};

struct WindowOptions {
  int64_t window_tokens = 256;
  int64_t max_tokens = 4096;  // of all windows together
};

// The documents of one half of the texts, each cut into windows; of more windows than max_tokens
// allows, some at equal distances are taken, and only whole ones unless there are none. Throws
// Error as read_capture_text does, and when the half has no document.
TokenWindows read_windows(const std::vector<std::string>& paths, CalibrationHalf half,
                          const Tokenizer& tokenizer, const WindowOptions& options);

}  // namespace k3
