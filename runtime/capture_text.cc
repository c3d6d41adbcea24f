#include "runtime/capture_text.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "runtime/text_input.h"
#include "schema/error.h"
#include "schema/hash.h"

namespace k3 {

int64_t CaptureText::longest_sequence() const {
  int64_t longest = 0;
  for (const CaptureSequence& sequence : sequences) {
    longest = std::max(longest, std::ssize(sequence.ids));
  }
  return longest;
}

CaptureText read_capture_text(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                              int64_t window_tokens) {
  CaptureText text;
  std::vector<CalibrationHalf> half_of;  // by document
  for (const std::string& path : paths) {
    if (std::filesystem::path(path).filename().string().starts_with("heldout-")) {
      throw Error(path, ": is held-out text by its name, which only reports may read");
    }
    const TextFile file = read_text(path);
    text.files.push_back({file.name, file.xxh3});
    const std::vector<std::vector<int32_t>> documents = tokenize_documents(file, tokenizer);
    for (size_t i = 0; i < documents.size(); ++i) {
      const uint64_t hash = xxh3(std::as_bytes(std::span(file.documents[i])));
      const auto tokens = std::ssize(documents[i]);
      const int64_t window = window_tokens > 0 ? window_tokens : tokens;
      for (int64_t begin = 0; begin < tokens; begin += window) {
        const auto first = documents[i].begin() + begin;
        text.sequences.push_back({.document = std::ssize(half_of),
                                  .ids = {first, first + std::min(window, tokens - begin)}});
      }
      text.sources.push_back({hash, file.name});
      half_of.push_back(half_of_document(hash));
      CalibrationDocuments& half = text.halves[static_cast<size_t>(half_of.back())];
      half.xxh3.push_back(hash);
      half.tokens += tokens;
    }
  }
  int64_t row = 0;
  for (const CalibrationHalf half : kCalibrationHalves) {
    RowRange& rows = text.rows[static_cast<size_t>(half)];
    rows.begin = row;
    for (CaptureSequence& sequence : text.sequences) {
      if (half_of[static_cast<size_t>(sequence.document)] != half) continue;
      sequence.first_row = row;
      row += std::ssize(sequence.ids);
    }
    rows.end = row;
  }
  return text;
}

}  // namespace k3
