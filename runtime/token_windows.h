// Texts as token ids, and calibration texts cut into the windows that measurements and fits run on.
//
// Calibration has two halves that share no document (schema/calibration.h), and neither holds a
// text that is held out: such texts are for the final report alone, or the report would say how
// well the report was learned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/evaluate.h"
#include "runtime/text_input.h"
#include "runtime/tokenizer.h"
#include "schema/calibration.h"

namespace k3 {

// Each document opened by the beginning-of-sequence token if the tokenizer asks for one.
EvalText tokenize(const TextFile& file, const Tokenizer& tokenizer);

struct TokenWindows {
  std::vector<CalibrationText> texts;
  std::vector<std::vector<int32_t>> windows;  // each is run from a fresh state

  int64_t tokens() const;
};

struct WindowOptions {
  int64_t window_tokens = 256;
  int64_t max_tokens = 4096;  // of all windows together
};

// The documents of one half of the files, end to end per file, in windows; of more windows than
// max_tokens allows some at equal distances are taken. A file's documents that fill no window make
// a shorter one. Throws Error for a file named heldout-*, and when there is not one window.
TokenWindows read_windows(const std::vector<std::string>& paths, CalibrationHalf half,
                          const Tokenizer& tokenizer, const WindowOptions& options);

}  // namespace k3
