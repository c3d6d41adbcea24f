#include "runtime/token_windows.h"

#include <algorithm>

#include "schema/error.h"
#include "schema/hash.h"

namespace k3 {

EvalText tokenize(const TextFile& file, const Tokenizer& tokenizer) {
  EvalText text{.name = file.name, .xxh3 = file.xxh3, .documents = {}};
  for (const std::string& document : file.documents) {
    std::vector<int32_t>& ids = text.documents.emplace_back();
    if (tokenizer.adds_bos()) ids.push_back(tokenizer.bos_id());
    const std::vector<int32_t> encoded = tokenizer.encode(document);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  return text;
}

int64_t TokenWindows::tokens() const {
  int64_t sum = 0;
  for (const std::vector<int32_t>& window : windows) sum += std::ssize(window);
  return sum;
}

TokenWindows read_windows(const std::vector<std::string>& paths, CalibrationHalf half,
                          const Tokenizer& tokenizer, const WindowOptions& options) {
  if (options.window_tokens < 2 || options.max_tokens < options.window_tokens) {
    throw Error("--window-tokens is ", options.window_tokens, ", --max-tokens ", options.max_tokens,
                ": expected at least 2, and room for one window");
  }
  const auto window = static_cast<size_t>(options.window_tokens);
  TokenWindows result;
  std::vector<std::vector<int32_t>> all;
  for (const std::string& path : paths) {
    TextFile file = read_text(path);
    if (file.name.starts_with("heldout")) {
      throw Error(path, ": is held out for the final report, expected a calibration text");
    }
    result.texts.push_back({file.name, file.xxh3});
    std::erase_if(file.documents, [half](const std::string& document) {
      return half_of_document(xxh3(std::as_bytes(std::span(document)))) != half;
    });
    std::vector<int32_t> ids;
    for (const std::vector<int32_t>& document : tokenize(file, tokenizer).documents) {
      ids.insert(ids.end(), document.begin(), document.end());
    }
    const size_t whole = ids.size() < window ? ids.size() : ids.size() / window * window;
    for (size_t begin = 0; begin < whole; begin += window) {
      all.emplace_back(ids.begin() + static_cast<int64_t>(begin),
                       ids.begin() + static_cast<int64_t>(std::min(begin + window, whole)));
    }
  }
  if (all.empty()) {
    throw Error(paths.front(), ": no document belongs to the ",
                kCalibrationHalfNames[static_cast<size_t>(half)], " half, expected at least one");
  }
  const size_t most = std::max<size_t>(1, static_cast<size_t>(options.max_tokens) / window);
  const size_t count = std::min(most, all.size());
  for (size_t i = 0; i < count; ++i) {
    result.windows.push_back(std::move(all[i * all.size() / count]));
  }
  return result;
}

}  // namespace k3
