// gx = gy W is a product with the decoded weights, dW = gy^T x one with the activations. Where only
// scales are wanted dW is never held whole: each range of rows is contracted with its codes as soon
// as it is there.
#include <algorithm>
#include <vector>

#include "kernels/decode_rows.h"
#include "kernels/gradients.h"
#include "kernels/lane_sum.h"
#include "kernels/parallel.h"
#include "kernels/team_product.h"
#include "schema/error.h"

namespace k3::gradient {
namespace {

void add_input_gradient(const MatrixView& weights, const float* gy, int64_t tokens, float* gx) {
  const int64_t cols = weights.cols;
  std::vector<float> decoded(static_cast<size_t>(weights.rows * cols));
  parallel_ranges(weights.rows, cols, [&](int64_t begin, int64_t end) {
    decode_rows(weights, begin, end - begin, decoded.data() + begin * cols);
  });
  add_team_product(tokens, cols, weights.rows, {gy, weights.rows}, {decoded.data(), cols}, gx,
                   cols);
}

// Sum over a block's inputs of dL/dw x code, since w = scale x code.
void contract_row(const MatrixView& weights, int64_t row, const float* weight_gradient,
                  float* codes, float* g_scales) {
  decode_codes(weights, row, codes);
  for (int64_t begin = 0; begin < weights.cols; begin += kBlockInputs) {
    const double sum = lane_sum(std::min(kBlockInputs, weights.cols - begin), [=](int64_t i) {
      return static_cast<double>(weight_gradient[begin + i]) *
             static_cast<double>(codes[begin + i]);
    });
    float& gradient = g_scales[row * weights.scales_per_row + begin / kBlockInputs];
    gradient = static_cast<float>(static_cast<double>(gradient) + sum);
  }
}

void add_scale_gradient(const MatrixView& weights, const float* x, const float* gy, int64_t tokens,
                        float* g_scales) {
  constexpr int64_t kRows = 48;  // of a range of dW
  const int64_t cols = weights.cols;
  const int64_t ranges = (weights.rows + kRows - 1) / kRows;
  parallel_ranges(ranges, kRows * cols * tokens / 16, [&](int64_t begin, int64_t end) {
    std::vector<float> weight_gradients(static_cast<size_t>(kRows * cols));
    std::vector<float> codes(static_cast<size_t>(cols));
    for (int64_t range = begin; range < end; ++range) {
      const int64_t first = range * kRows;
      const int64_t rows = std::min(kRows, weights.rows - first);
      std::fill(weight_gradients.begin(), weight_gradients.end(), 0.0F);
      const FloatMatrix outputs{gy + first, weights.rows};
      add_team_product(rows, cols, tokens, outputs.transposed(), {x, cols}, weight_gradients.data(),
                       cols);
      for (int64_t r = 0; r < rows; ++r) {
        contract_row(weights, first + r, weight_gradients.data() + r * cols, codes.data(),
                     g_scales);
      }
    }
  });
}

}  // namespace

void matmul(const MatrixView& weights, const float* x, const float* gy, int64_t tokens, float* gx,
            float* g_scales) {
  K3_CHECK(g_scales == nullptr || lies_in_blocks160(weights.format));
  if (gx != nullptr) add_input_gradient(weights, gy, tokens, gx);
  if (g_scales != nullptr) add_scale_gradient(weights, x, gy, tokens, g_scales);
}

void matmul_weights(const float* x, const float* gy, int64_t tokens, int64_t rows, int64_t cols,
                    float* g_weights) {
  const FloatMatrix outputs{gy, rows};
  add_team_product(rows, cols, tokens, outputs.transposed(), {x, cols}, g_weights, cols);
}

}  // namespace k3::gradient
