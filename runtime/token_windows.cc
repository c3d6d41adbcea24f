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
  const CaptureText text = read_capture_text(paths, tokenizer);
  std::vector<int32_t> ids;
  for (const CaptureDocument& document : text.documents) {
    if (half_of_document(document.xxh3) != half) continue;
    ids.insert(ids.end(), document.ids.begin(), document.ids.end());
  }
  if (ids.size() < 2) {
    throw Error(paths.front(), ": the ", kCalibrationHalfNames[static_cast<size_t>(half)],
                " half of the texts has ", ids.size(), " tokens, expected at least 2");
  }
  const size_t window = std::min(static_cast<size_t>(options.window_tokens), ids.size());
  const size_t all = ids.size() / window;
  const size_t count = std::min(all, static_cast<size_t>(options.max_tokens) / window);
  TokenWindows result{.texts = text.files, .windows = {}};
  for (size_t i = 0; i < count; ++i) {
    const auto begin = ids.begin() + static_cast<int64_t>(i * all / count * window);
    result.windows.emplace_back(begin, begin + static_cast<int64_t>(window));
  }
  return result;
}

}  // namespace k3
