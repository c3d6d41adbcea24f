// A product split over threads by rows: every output has one writer, and a row's sum does not know
// which thread runs it, so neither does a bit of the result.
//
// The batch is quantized once. A block of rows then meets the vectors in tiles small enough for the
// first-level caches; the block's codes come from memory once for the whole batch.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/parallel.h"
#include "kernels/row_products_cpu.h"

namespace k3::cpu {
namespace {

constexpr int64_t kTileTokens = 64;
constexpr int64_t kBlockRows = 16;

// y[:, row_begin..row_end) for at most kBlockRows rows.
void multiply_block(const MatrixView& weights, int64_t row_begin, int64_t row_end,
                    std::span<const PreparedVector* const> vectors, const ReadAhead& ahead,
                    float* y) {
  const int64_t rows = row_end - row_begin;
  std::array<double, kTileTokens * kBlockRows> sums;
  const auto tokens = static_cast<int64_t>(vectors.size());
  for (int64_t t = 0; t < tokens; t += kTileTokens) {
    const int64_t tile = std::min(kTileTokens, tokens - t);
    row_sums(weights, row_begin, row_end,
             vectors.subspan(static_cast<size_t>(t), static_cast<size_t>(tile)), sums.data(),
             ahead);
    for (int64_t i = 0; i < tile; ++i) {
      const double power = exact_output_power(weights, vectors[static_cast<size_t>(t + i)]->step);
      for (int64_t r = 0; r < rows; ++r) {
        y[(t + i) * weights.rows + row_begin + r] = exact_scaled_output(
            weights, row_begin + r, sums[static_cast<size_t>(i * rows + r)], power);
      }
    }
  }
}

}  // namespace

void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  const int64_t cols = weights.cols;
  ActivationBatch batch(weights.format, tokens, cols);
  parallel_ranges(tokens, cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) batch.set(t, x + t * cols, cols);
  });
  std::vector<const PreparedVector*> vectors;
  for (const PreparedVector& vector : batch.vectors()) vectors.push_back(&vector);

  // Multiply-adds of a nanosecond, or less where memory is the limit.
  const int64_t rate = reads_codes(weights.format) ? 24 : 8;
  const int64_t threads = team_threads();
  parallel_ranges(weights.rows, tokens * cols / rate, [&](int64_t begin, int64_t end) {
    // Where all are equally fast, each thread takes every so many-th range.
    const int64_t next = begin + threads * (end - begin);
    const ReadAhead ahead =
        read_rows(weights, end,
                  next < weights.rows ? weights.codes + next * weights.row_stride_bytes : nullptr);
    for (int64_t r = begin; r < end; r += kBlockRows) {
      multiply_block(weights, r, std::min(r + kBlockRows, end), vectors, ahead, y);
    }
  });
}

}  // namespace k3::cpu
