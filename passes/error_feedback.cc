// With the inputs in ascending energy, H + r I = L L^T, the cost of errors e is the sum over places
// c of (sum over i >= c of e_i L_ic)^2. From the last place down, everything in a bracket but e_c
// is known, so the code nearest to
//   w_c - sum over i > c of e_i L_ic / L_cc
// is the best for its bracket. A block of 128 places is walked row by row with its own part of the
// factor; what it does to all places below is one product.
#include "passes/error_feedback.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <numeric>

#include "passes/damped_factor.h"
#include "schema/float_product.h"

namespace k3 {
namespace {

constexpr int64_t kBlock = 128;

}  // namespace

ErrorFeedback::ErrorFeedback(std::span<const float> gram, int64_t cols, double ridge)
    : cols_(cols), order_(static_cast<size_t>(cols)), feedback_(static_cast<size_t>(cols * cols)) {
  std::iota(order_.begin(), order_.end(), int64_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
    return gram[static_cast<size_t>(a * cols + a)] < gram[static_cast<size_t>(b * cols + b)];
  });
  tbb::parallel_for(int64_t{0}, cols, [&](int64_t i) {
    const float* const from = gram.data() + order_[static_cast<size_t>(i)] * cols;
    float* const to = feedback_.data() + i * cols;
    for (int64_t j = 0; j <= i; ++j) to[j] = from[order_[static_cast<size_t>(j)]];
  });
  factor_damped(feedback_, cols, ridge);
  std::vector<float> pivots(static_cast<size_t>(cols));
  for (int64_t i = 0; i < cols; ++i) {
    pivots[static_cast<size_t>(i)] = feedback_[static_cast<size_t>(i * cols + i)];
  }
  tbb::parallel_for(int64_t{0}, cols, [&](int64_t i) {
    float* const row = feedback_.data() + i * cols;
    for (int64_t j = 0; j < i; ++j) row[j] /= pivots[static_cast<size_t>(j)];
  });
}

double ErrorFeedback::choose_codes(RowBlock& block) const {
  const int64_t cols = cols_;
  std::vector<float> targets(block.weights.size());
  for (int64_t row = 0; row < block.rows; ++row) {
    for (int64_t place = 0; place < cols; ++place) {
      targets[static_cast<size_t>(row * block.stride + place)] =
          block.weight_row(row)[order_[static_cast<size_t>(place)]];
    }
  }
  double multiplications = 0;
  std::vector<float> negated_errors(static_cast<size_t>(block.rows * kBlock));
  for (int64_t end = cols; end > 0;) {
    const int64_t first = (end - 1) / kBlock * kBlock;
    for (int64_t row = 0; row < block.rows; ++row) {
      float* const target = targets.data() + row * block.stride;
      for (int64_t place = end - 1; place >= first; --place) {
        const int64_t col = order_[static_cast<size_t>(place)];
        const float scale = block.scale_row(row)[col / kBlockInputs];
        const int8_t code =
            scale > 0 ? nearest_code(target[place], scale, block.largest_code) : int8_t{0};
        block.code_row(row)[col] = code;
        const float error = scale * static_cast<float>(code) - block.weight_row(row)[col];
        negated_errors[static_cast<size_t>(row * kBlock + place - first)] = -error;
        const float* const feedback = feedback_.data() + place * cols;
        for (int64_t j = first; j < place; ++j) target[j] -= error * feedback[j];
      }
    }
    add_float_product(block.rows, first, end - first, {negated_errors.data(), kBlock},
                      {feedback_.data() + first * cols, cols}, targets.data(), block.stride);
    multiplications += static_cast<double>(block.rows * first) * static_cast<double>(end - first);
    end = first;
  }
  return multiplications;
}

}  // namespace k3
