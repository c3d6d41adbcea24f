// A product split over threads by rows: every output has one writer, and a row's sum does not know
// which thread runs it, so neither does a bit of the result.
//
// A batch is prepared once. A block of rows then meets the vectors in tiles small enough for the
// first-level caches; the block's codes come from memory once for the whole batch. A single vector
// is prepared by each thread for itself: that costs less than to fetch it from another core's
// cache.
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
                    std::span<const PreparedVector* const> vectors, float* y) {
  const int64_t rows = row_end - row_begin;
  std::array<double, kTileTokens * kBlockRows> sums;
  const auto tokens = static_cast<int64_t>(vectors.size());
  for (int64_t t = 0; t < tokens; t += kTileTokens) {
    const int64_t tile = std::min(kTileTokens, tokens - t);
    row_sums(weights, row_begin, row_end,
             vectors.subspan(static_cast<size_t>(t), static_cast<size_t>(tile)), sums.data());
    for (int64_t i = 0; i < tile; ++i) {
      const double power = exact_output_power(weights, vectors[static_cast<size_t>(t + i)]->step);
      for (int64_t r = 0; r < rows; ++r) {
        y[(t + i) * weights.rows + row_begin + r] = exact_scaled_output(
            weights, row_begin + r, sums[static_cast<size_t>(i * rows + r)], power);
      }
    }
  }
}

// y for a range of blocks of rows.
void multiply_blocks(const MatrixView& weights, LoopRange blocks,
                     std::span<const PreparedVector* const> vectors, float* y) {
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    const int64_t row = block * kBlockRows;
    multiply_block(weights, row, std::min(row + kBlockRows, weights.rows), vectors, y);
  }
}

}  // namespace

void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  const int64_t cols = weights.cols;
  // Multiply-adds of a nanosecond, or less where memory is the limit.
  const int64_t rate = reads_codes(weights.format) ? 24 : 8;
  const int64_t blocks = divide_up(weights.rows, kBlockRows);
  const int64_t block_cost = kBlockRows * tokens * cols / rate;
  if (tokens == 1) {
    parallel_takers(blocks, block_cost, [&](RangeTaker& taker) {
      LoopRange range;
      if (!taker.take(range)) return;
      prefetch_first(weights, range.begin * kBlockRows);
      ActivationBatch own(weights.format, 1, cols);
      own.set(0, x, cols);
      const PreparedVector* const vector = &own[0];
      do {
        multiply_blocks(weights, range, {&vector, 1}, y);
      } while (taker.take(range));
    });
    return;
  }
  ActivationBatch batch(weights.format, tokens, cols);
  parallel_ranges(tokens, cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) batch.set(t, x + t * cols, cols);
  });
  std::vector<const PreparedVector*> vectors;
  for (const PreparedVector& vector : batch.vectors()) vectors.push_back(&vector);
  parallel_ranges(blocks, block_cost, [&](int64_t begin, int64_t end) {
    multiply_blocks(weights, {begin, end}, vectors, y);
  });
}

}  // namespace k3::cpu
