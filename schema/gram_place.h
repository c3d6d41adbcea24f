// Where the sums of a Gram matrix lie in a calibration file: rows of the upper triangle, or of all
// columns, one after the other, in pieces of whole rows.
//
// A piece is what is compressed, written and read at once. At 8 MiB it is large enough to compress
// well and small enough that the widest matrix of K3 (33,792 channels, 4.6 GB) is never in memory
// for the sake of reading it.
#pragma once

#include <cstdint>
#include <vector>

namespace k3 {

inline constexpr int64_t kGramPieceEntries = int64_t{1} << 20;

struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct GramPlace {
  int64_t width = 0;
  bool triangular = true;

  int64_t first_col(int64_t row) const { return triangular ? row : 0; }
  // Sums before row `row`.
  int64_t row_offset(int64_t row) const {
    return triangular ? row * width - row * (row - 1) / 2 : row * width;
  }
  int64_t entries(RowRange rows) const { return row_offset(rows.end) - row_offset(rows.begin); }

  // As many rows as fit kGramPieceEntries, and at least one, each time.
  std::vector<RowRange> pieces() const {
    std::vector<RowRange> ranges;
    for (int64_t begin = 0; begin < width;) {
      int64_t end = begin + 1;
      while (end < width && entries({begin, end + 1}) <= kGramPieceEntries) ++end;
      ranges.push_back({begin, end});
      begin = end;
    }
    return ranges;
  }
};

}  // namespace k3
