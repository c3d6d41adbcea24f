#include "runtime/capture_text.h"

#include <filesystem>
#include <span>
#include <utility>

#include "runtime/text_input.h"
#include "schema/error.h"
#include "schema/hash.h"

namespace k3 {

CaptureText read_capture_text(const std::vector<std::string>& paths, const Tokenizer& tokenizer) {
  CaptureText text;
  for (const std::string& path : paths) {
    if (std::filesystem::path(path).filename().string().starts_with("heldout-")) {
      throw Error(path, ": is held-out text by its name, which only reports may read");
    }
    const TextFile file = read_text(path);
    text.files.push_back({file.name, file.xxh3});
    std::vector<std::vector<int32_t>> ids = tokenize_documents(file, tokenizer);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i].empty()) continue;
      text.documents.push_back(
          {.xxh3 = xxh3(std::as_bytes(std::span(file.documents[i]))), .ids = std::move(ids[i])});
    }
  }
  int64_t row = 0;
  for (const CalibrationHalf half : kCalibrationHalves) {
    const auto position = static_cast<size_t>(half);
    text.rows[position].begin = row;
    for (CaptureDocument& document : text.documents) {
      if (half_of_document(document.xxh3) != half) continue;
      document.first_row = row;
      row += std::ssize(document.ids);
      text.halves[position].xxh3.push_back(document.xxh3);
    }
    text.rows[position].end = row;
    text.halves[position].tokens = row - text.rows[position].begin;
  }
  return text;
}

}  // namespace k3
