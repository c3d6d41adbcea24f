// Texts that the runtime reads: plain files, or JSON lines with one document per line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer.h"

namespace k3 {

struct TextFile {
  std::string name;                    // the file's base name without extension: "heldout-prose"
  uint64_t xxh3 = 0;                   // of the file's bytes
  std::vector<std::string> documents;  // UTF-8
};

// A file that ends in .jsonl holds one JSON object a line with the document in "text"; any other
// file is one document. Throws Error naming file and line for what is not such an object, and for a
// file without any text.
TextFile read_text(const std::string& path);

// Each document's token ids, opened by the beginning-of-sequence token if the tokenizer asks for
// one.
std::vector<std::vector<int32_t>> tokenize_documents(const TextFile& file,
                                                     const Tokenizer& tokenizer);

}  // namespace k3
