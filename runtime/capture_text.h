// The texts of a capture as documents of token ids, split into the two halves of a calibration.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer.h"
#include "schema/calibration.h"
#include "schema/gram_place.h"
#include "schema/routing_trace.h"

namespace k3 {

// Tokens that run from a fresh state: a document, or a window of one.
struct CaptureSequence {
  int64_t document = 0;  // counted over all texts
  std::vector<int32_t> ids;
  // Where its tokens lie in whatever has a row for every token. All fit documents come first, so
  // that a half is one range of rows.
  int64_t first_row = 0;
};

struct CaptureText {
  std::vector<CalibrationText> files;
  std::vector<CaptureSequence> sequences;      // in the order of the files
  std::vector<TraceDocument> sources;          // of each document: its hash, and its file's name
  std::array<CalibrationDocuments, 2> halves;  // by CalibrationHalf
  std::array<RowRange, 2> rows;                // of each half

  int64_t tokens() const { return rows[1].end; }
  int64_t documents() const { return std::ssize(halves[0].xxh3) + std::ssize(halves[1].xxh3); }
  int64_t longest_sequence() const;
};

// Documents are opened by BOS where the tokenizer adds one, then cut into windows of at most
// `window_tokens` tokens; 0 leaves them whole. Throws Error for a file that cannot be read or holds
// no text, and for one whose name starts with "heldout-", which reports alone may read: what a
// model was fitted on proves nothing about it.
CaptureText read_capture_text(const std::vector<std::string>& paths, const Tokenizer& tokenizer,
                              int64_t window_tokens);

}  // namespace k3
