// The block scales of a matrix as least squares: with its codes fixed, an output is linear in the
// scales of its row, and which scales come nearest to wanted outputs is one small system of
// equations a row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schema/matrix_view.h"

namespace k3 {

class ScaleEquations {
 public:
  // For a matrix in blocks160, whose codes and scales are taken from the view now. Throws Error,
  // which starts with `subject`, for scales that are negative or not finite.
  ScaleEquations(const MatrixView& matrix, const std::string& subject);

  int64_t rows() const { return rows_; }
  int64_t blocks() const { return blocks_; }

  // Adds tokens: what the matrix reads, `tokens` rows of its columns, `stride` values apart, and
  // what it should give, [tokens, rows]. Results do not depend on the number of threads.
  void add(const float* x, int64_t stride, const float* wanted, int64_t tokens);

  struct Solution {
    std::vector<float> scales;  // [rows, blocks], finite, not negative
    // Sums over rows and tokens: the square of what was wanted, and what is left of it with the
    // scales as they were and as they are now.
    double wanted = 0, before = 0, after = 0;
  };
  // Least squares, held to the old scales by `ridge` times the mean of the diagonal.
  Solution solve(double ridge) const;

 private:
  double* products(int64_t row) {
    return products_.data() + static_cast<size_t>(row * (blocks_ + 1) * blocks_);
  }

  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t blocks_ = 0;
  std::vector<int8_t> codes_;     // [rows, cols]
  std::vector<float> scales_;     // [rows, blocks]: as they were
  std::vector<double> products_;  // [rows, blocks + 1, blocks]: Z'Z, then Z'y
  std::vector<double> squares_;   // [rows]: y'y
};

}  // namespace k3
