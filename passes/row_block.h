// Some rows of a matrix in the middle of being solved: what the steps of the solver hand on.
//
// The loss of a row is e (H + r I) e^T with e = w^ - w: the energy its output loses, and a ridge r
// that stands for what a Gram matrix of finitely many tokens does not know. The slopes are
// Q = (W^ - W)(H + r I), half its gradient, and are kept true to codes and scales by every step:
// from them follow the best value of a code, the best scales, and the loss itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schema/formats/int8.h"
#include "schema/layout.h"

namespace k3 {

struct Loss {
  std::span<const float> gram;  // H, [cols, cols], symmetric
  int64_t cols = 0;
  float ridge = 0;
};

// Floats from one row to the next: not a multiple of a large power of two, or all rows of a column
// would share one set of the cache.
inline int64_t row_stride(int64_t cols) {
  return align_up(cols, 16) + 16;
}

struct RowBlock {
  int64_t rows = 0;
  int64_t cols = 0;
  int largest_code = 1;
  int64_t groups = 0;  // blocks of 160 inputs, the last one possibly shorter
  int64_t stride = 0;
  std::vector<float> weights;  // W: [rows, stride]
  std::vector<float> slopes;   // Q: [rows, stride]
  std::vector<int8_t> codes;   // [rows, cols]
  std::vector<float> scales;   // [rows, groups], not negative

  RowBlock(int64_t row_count, int64_t col_count, int most_code)
      : rows(row_count),
        cols(col_count),
        largest_code(most_code),
        groups(divide_up(col_count, kBlockInputs)),
        stride(row_stride(col_count)),
        weights(static_cast<size_t>(rows * stride)),
        slopes(static_cast<size_t>(rows * stride)),
        codes(static_cast<size_t>(rows * cols)),
        scales(static_cast<size_t>(rows * groups)) {}

  float* weight_row(int64_t row) { return weights.data() + row * stride; }
  const float* weight_row(int64_t row) const { return weights.data() + row * stride; }
  float* slope_row(int64_t row) { return slopes.data() + row * stride; }
  const float* slope_row(int64_t row) const { return slopes.data() + row * stride; }
  int8_t* code_row(int64_t row) { return codes.data() + row * cols; }
  const int8_t* code_row(int64_t row) const { return codes.data() + row * cols; }
  float* scale_row(int64_t row) { return scales.data() + row * groups; }
  const float* scale_row(int64_t row) const { return scales.data() + row * groups; }

  int64_t group_begin(int64_t group) const { return group * kBlockInputs; }
  int64_t group_size(int64_t group) const {
    const int64_t left = cols - group * kBlockInputs;
    return left < kBlockInputs ? left : kBlockInputs;
  }
  float value(int64_t row, int64_t col) const {
    return scale_row(row)[col / kBlockInputs] * static_cast<float>(code_row(row)[col]);
  }
};

// The code of `target` under a scale above 0: the nearest level, half-way the one nearer to 0.
int8_t nearest_code(float target, float scale, int largest_code);

// W^ - W as [rows, stride], zeros behind the last column.
std::vector<float> value_errors(const RowBlock& block);

// Computes the slopes anew. Returns the multiply-adds it took, as the functions below do.
double refresh_slopes(RowBlock& block, const Loss& loss);

// Follows changes of the values of one group, [rows, 160], with the slopes.
double add_changes(RowBlock& block, const Loss& loss, int64_t group,
                   std::span<const float> changes);

// What a row loses, from its slopes: with the ridge, and in the output alone.
double row_loss(const RowBlock& block, int64_t row);
double lost_energy(const RowBlock& block, const Loss& loss, int64_t row);

// Rows of `block` that lose more than those of `before`, the same rows, go back to those.
void keep_better(RowBlock& block, const RowBlock& before);

}  // namespace k3
