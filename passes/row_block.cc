#include "passes/row_block.h"

#include <algorithm>
#include <cmath>

#include "schema/float_product.h"

namespace k3 {

int8_t nearest_code(float target, float scale, int largest_code) {
  const float magnitude = std::ceil(std::fabs(target) / scale - 0.5F);
  const float code = std::fmin(magnitude, static_cast<float>(largest_code));
  return static_cast<int8_t>(std::copysign(std::fmax(code, 0.0F), target));
}

std::vector<float> value_errors(const RowBlock& block) {
  std::vector<float> errors(block.weights.size());
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* const weights = block.weight_row(row);
    float* const out = errors.data() + row * block.stride;
    for (int64_t col = 0; col < block.cols; ++col) out[col] = block.value(row, col) - weights[col];
  }
  return errors;
}

double refresh_slopes(RowBlock& block, const Loss& loss) {
  const std::vector<float> errors = value_errors(block);
  for (size_t i = 0; i < errors.size(); ++i) block.slopes[i] = loss.ridge * errors[i];
  add_float_product(block.rows, block.cols, block.cols, {errors.data(), block.stride},
                    {loss.gram.data(), block.cols}, block.slopes.data(), block.stride);
  return static_cast<double>(block.rows * block.cols) * static_cast<double>(block.cols);
}

double add_changes(RowBlock& block, const Loss& loss, int64_t group,
                   std::span<const float> changes) {
  const int64_t begin = block.group_begin(group);
  const int64_t size = block.group_size(group);
  for (int64_t row = 0; row < block.rows; ++row) {
    float* const slopes = block.slope_row(row) + begin;
    const float* const change = changes.data() + row * kBlockInputs;
    for (int64_t j = 0; j < size; ++j) slopes[j] += loss.ridge * change[j];
  }
  add_float_product(block.rows, block.cols, size, {changes.data(), kBlockInputs},
                    {loss.gram.data() + begin * block.cols, block.cols}, block.slopes.data(),
                    block.stride);
  return static_cast<double>(block.rows * size) * static_cast<double>(block.cols);
}

double row_loss(const RowBlock& block, int64_t row) {
  const float* const weights = block.weight_row(row);
  const float* const slopes = block.slope_row(row);
  double sum = 0;
  for (int64_t col = 0; col < block.cols; ++col) {
    const double error = static_cast<double>(block.value(row, col)) - weights[col];
    sum += error * slopes[col];
  }
  return sum;
}

double lost_energy(const RowBlock& block, const Loss& loss, int64_t row) {
  const float* const weights = block.weight_row(row);
  double squares = 0;
  for (int64_t col = 0; col < block.cols; ++col) {
    const double error = static_cast<double>(block.value(row, col)) - weights[col];
    squares += error * error;
  }
  return row_loss(block, row) - loss.ridge * squares;
}

void keep_better(RowBlock& block, const RowBlock& before) {
  for (int64_t row = 0; row < block.rows; ++row) {
    if (row_loss(block, row) <= row_loss(before, row)) continue;
    std::copy_n(before.slope_row(row), block.cols, block.slope_row(row));
    std::copy_n(before.code_row(row), block.cols, block.code_row(row));
    std::copy_n(before.scale_row(row), block.groups, block.scale_row(row));
  }
}

}  // namespace k3
