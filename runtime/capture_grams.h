// The second sweep: rows become codes, codes become sums, sums go into the calibration.
//
// As many rows of the matrix are summed at once as memory allows; with less memory the tokens are
// swept more often. Integer sums do not show which.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/row_store.h"
#include "schema/calibration_writer.h"
#include "schema/gram_place.h"

namespace k3 {

// One side of a product: a row for each token, and the steps of its channels.
struct GramSide {
  const RowStore* rows = nullptr;
  std::span<const int16_t> exponents;
};

struct GramCost {
  double seconds = 0;    // of reading, coding and multiplying
  int64_t products = 0;  // multiply-adds that the matrices are made of
  int64_t sums = 0;      // entries stored
  int64_t bytes = 0;     // that they take in the file
  double store_seconds = 0;
};

// Appends the sum of y x' over the tokens `tokens` to `writer` and returns its pieces. `y` and `x`
// may be the same side. Takes `memory_bytes` or, if that is less, what one piece takes.
std::vector<Extent> write_gram(const GramPlace& place, const GramSide& y, const GramSide& x,
                               RowRange tokens, int64_t memory_bytes, CalibrationWriter& writer,
                               GramCost& cost);

// The memory that the narrowest sweep of a matrix of this width takes.
int64_t least_gram_bytes(int64_t width);

}  // namespace k3
