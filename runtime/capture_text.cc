#include "runtime/capture_text.h"

#include <filesystem>
#include <span>

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
    for (const std::string& content : file.documents) {
      CaptureDocument& document = text.documents.emplace_back();
      document.xxh3 = xxh3(std::as_bytes(std::span(content)));
      if (tokenizer.adds_bos()) document.ids.push_back(tokenizer.bos_id());
      const std::vector<int32_t> ids = tokenizer.encode(content);
      document.ids.insert(document.ids.end(), ids.begin(), ids.end());
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
