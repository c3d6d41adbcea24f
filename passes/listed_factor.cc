#include "passes/listed_factor.h"

#include "schema/error.h"

namespace k3 {

ListedFactor::ListedFactor(int64_t rows, int64_t depth, FloatMatrix a)
    : rows_(rows), depth_(depth) {
  K3_CHECK(depth <= ListedTerms::kMostDepth);
  for (int64_t i = 0; i < rows; ++i) {
    const float* const row = a.data + i * a.row_stride;
    for (int64_t k = 0; k < depth; ++k) {
      const float value = row[k * a.col_stride];
      if (value == 0) continue;
      used_[static_cast<size_t>(k)] = true;
      indices_.push_back(static_cast<int32_t>(k));
      values_.push_back(value);
    }
    ends_.push_back(std::ssize(indices_));
  }
  // Tiles are more than twice as fast as lists.
  if (5 * std::ssize(indices_) < 2 * rows * depth) return;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      dense_.push_back(a.data[i * a.row_stride + k * a.col_stride]);
    }
  }
}

double ListedFactor::add_product_with(int64_t cols, FloatMatrix b, float* c,
                                      int64_t c_stride) const {
  if (empty()) return 0;
  if (!dense_.empty()) {
    add_float_product(rows_, cols, depth_, {dense_.data(), depth_}, b, c, c_stride);
    return static_cast<double>(rows_ * depth_) * static_cast<double>(cols);
  }
  add_listed_product({rows_, depth_, ends_.data(), indices_.data(), values_.data(), used_.data()},
                     cols, b, c, c_stride);
  return static_cast<double>(indices_.size()) * static_cast<double>(cols);
}

}  // namespace k3
