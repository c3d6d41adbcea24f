// Reads a .k3trace block by block: memory is one block, whatever the trace's length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schema/file.h"
#include "schema/routing_trace.h"

namespace k3 {

class TraceReader {
 public:
  // Reads and checks the header. Throws Error for what is no trace, or a damaged one.
  explicit TraceReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const TraceHeader& header() const { return header_; }

  // The next block; false at the end. What a killed writer left unfinished at the end of the file
  // is the end too, and is_cut() tells. Throws Error for damage anywhere else.
  bool next(TraceBlock& block);
  // The same without decompressing, for merging.
  bool next_stored(TraceBlockHeader& place, std::vector<std::byte>& stored);

  // Once the end was reached: whether the file stops before its own end mark.
  bool is_cut() const { return is_cut_; }
  // How many tokens the blocks so far reach to.
  int64_t tokens() const { return tokens_; }
  // XXH3-64 of the bytes so far, header and whole blocks; names what was read.
  uint64_t digest() const { return hash_.digest(); }

 private:
  bool end_as_cut() {
    is_cut_ = true;
    return false;
  }

  File file_;
  TraceHeader header_;
  Xxh3Stream hash_;
  int64_t at_bytes_ = 0;
  int64_t tokens_ = 0;
  int64_t blocks_ = 0;
  bool is_cut_ = false;
  bool ended_ = false;
};

}  // namespace k3
