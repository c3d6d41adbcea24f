// What a pack recorded about its own making, found by item: the reports `decisions` and `sources`
// (schema/README.md, section 3) read back.
//
// The reports come from a file and are checked as such: a line with a field too many is an Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/pack_reader.h"

namespace k3 {

// A byte range of the checkpoint that went into one item. Views into the history's text.
struct RecordedSource {
  std::string_view tensor;  // the checkpoint's own name
  std::string_view shard;   // file name
  int64_t offset_bytes = 0;
  int64_t length_bytes = 0;
};

// A line of `decisions`.
struct RecordedDecision {
  std::string_view subject;
  std::string_view pass;
  std::string_view choice;
  std::string_view reason;
  double number = 0;
};

class PackHistory {
 public:
  // Reads `decisions` and `sources`. Throws Error when one is missing or damaged. `pack` must
  // outlive the history.
  explicit PackHistory(const PackReader& pack);

  // What the checkpoint's names have before the pack's, e.g. "language_model.".
  const std::string& source_prefix() const { return prefix_; }

  // The source of the trunk tensor `name` (the pack's name), or the sources of an expert in the
  // order in which they were hashed.
  std::vector<RecordedSource> sources_of_tensor(std::string_view name) const;
  std::vector<RecordedSource> sources_of_expert(int64_t layer, int64_t source_id) const;

  // In the order in which they were made.
  std::vector<RecordedDecision> decisions_about(std::string_view subject) const;

 private:
  template <class Wanted>
  std::vector<RecordedSource> find_sources(const Wanted& is_wanted) const;

  std::string path_;
  std::string decisions_;
  std::string sources_;
  std::string prefix_;
};

}  // namespace k3
