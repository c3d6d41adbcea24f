#include "runtime/token_windows.h"

#include <algorithm>

#include "runtime/capture_text.h"
#include "schema/error.h"

namespace k3 {

int64_t TokenWindows::tokens() const {
  int64_t sum = 0;
  for (const std::vector<int32_t>& window : windows) sum += std::ssize(window);
  return sum;
}

TokenWindows read_windows(const std::vector<std::string>& paths, CalibrationHalf half,
                          const Tokenizer& tokenizer, const WindowOptions& options) {
  if (options.window_tokens < 2 || options.max_tokens < options.window_tokens) {
    throw Error("--window-tokens is ", options.window_tokens, " and --max-tokens ",
                options.max_tokens, ", expected at least 2, and room for one window");
  }
  CaptureText text = read_capture_text(paths, tokenizer, options.window_tokens);
  const RowRange rows = text.rows[static_cast<size_t>(half)];
  std::vector<CaptureSequence*> windows;
  int64_t longest = 0;
  for (CaptureSequence& sequence : text.sequences) {
    if (sequence.first_row < rows.begin || sequence.first_row >= rows.end) continue;
    windows.push_back(&sequence);
    longest = std::max(longest, std::ssize(sequence.ids));
  }
  if (longest < 2) {
    throw Error(paths.front(), ": the ", kCalibrationHalfNames[static_cast<size_t>(half)],
                " half of the texts has no document of two tokens");
  }
  // Ends of documents, where there is anything longer, are not worth a run.
  std::erase_if(windows,
                [&](const CaptureSequence* window) { return std::ssize(window->ids) < longest; });
  const size_t all = windows.size();
  const auto most = static_cast<size_t>(options.max_tokens / longest);
  const size_t count = std::min(all, most);
  TokenWindows result{.texts = text.files, .windows = {}};
  for (size_t i = 0; i < count; ++i) {
    result.windows.push_back(std::move(windows[i * all / count]->ids));
  }
  return result;
}

}  // namespace k3
