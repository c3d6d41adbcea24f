// A matrix with the spectrum of a trained one, row by row.
//
//   W[i][j] = scale * row_gain[i] * column_gain[j] * (bulk * n[i][j] + sum_r s[r] u[i][r] v[r][j])
//
// n, u and v are bell-shaped with variance 1. The bulk alone would be white; the sum adds `rank`
// directions whose energies fall as 1 / r, which is what the head of a trained matrix's spectrum
// looks like; the gains spread the rest. Mean squares of the column gains and of the bracket are 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/synth_random.h"

namespace k3 {

struct MatrixCharacter {
  int64_t rank = 0;              // strong directions
  float strong_share = 0;        // of the energy, in those
  float row_spread = 0;          // relative standard deviation of the row gains
  float column_spread = 0;       // gains are (1 + spread * n)^2
  uint64_t outlier_columns = 0;  // one column in so many (0: none) is ...
  float outlier_gain = 1;        // ... this many times as large
};

class SynthMatrix {
 public:
  // [any number of rows, cols] with root mean square `scale`.
  SynthMatrix(const RandomStream& stream, int64_t cols, float scale,
              const MatrixCharacter& character);

  void make_row(int64_t row, std::span<float> out) const;  // [cols]

 private:
  RandomStream bulk_;
  RandomStream left_;
  RandomStream row_gains_;
  int64_t cols_;
  float scale_;
  float bulk_share_;
  float row_spread_;
  std::vector<float> column_gains_;  // [cols]
  std::vector<float> strengths_;     // [rank]
  std::vector<float> right_;         // [rank, cols]
};

}  // namespace k3
