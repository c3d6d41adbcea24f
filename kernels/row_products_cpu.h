// Blocks of rows of a product on this machine's vector unit: what matmul_cpu.cc and
// routed_experts_cpu.cc split over threads. The bits are those of the exact_ functions in matmul.h
// and routed_experts.h, whichever instruction set the machine has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/matmul.h"
#include "schema/format.h"
#include "schema/matrix_view.h"

namespace k3::cpu {

// exact_quantize.
ActivationStep quantize(const float* x, int64_t n, int16_t* codes);

// One vector as row_sums reads it.
struct PreparedVector {
  const float* values = nullptr;        // float formats: the vector itself
  const int16_t* codes = nullptr;       // integer formats: the codes, then zeros
  const std::byte* arranged = nullptr;  // codes or doubles as the instruction set wants them, if so
  ActivationStep step;
};

// The vectors of a batch, prepared for products with weights of one format. Owns what it arranges;
// the instruction set must not change while it lives.
class ActivationBatch {
 public:
  // `count` vectors of `cols` values; each is to be set.
  ActivationBatch(Format format, int64_t count, int64_t cols);

  // Vector `i` := `x`, which has to outlive the batch if the format is a float. `cols` may be less
  // than the batch's. Different vectors may be set by different threads.
  void set(int64_t i, const float* x, int64_t cols);

  const PreparedVector& operator[](int64_t i) const { return vectors_[static_cast<size_t>(i)]; }
  std::span<const PreparedVector> vectors() const { return vectors_; }

 private:
  Format format_;
  std::vector<PreparedVector> vectors_;
  hwy::AlignedFreeUniquePtr<std::byte[]> bytes_;
  int64_t codes_ = 0;         // a vector, with its padding
  int64_t stride_bytes_ = 0;  // a vector
};

// Where decoding is slow or rows are read side by side, the processor does not look far enough
// ahead by itself: each line asks for the one that comes this much later, into the second-level
// cache. Twice as much makes what a thread reads first come late more often than it helps.
inline constexpr int64_t kPrefetchBytes = 8192;

// How much later comes what each line of codes asks for into the first level, against one vector:
// where decoding is the limit, waiting for the second level would be a sixth of the time. Against
// several vectors the first level is full of these.
inline constexpr uintptr_t kNearBytes = 1536;

// Asks for what nobody asked for ahead: the first codes that a thread reads, from `row` on.
inline void prefetch_first(const MatrixView& weights, int64_t row) {
  const std::byte* from = weights.codes + row * weights.row_stride_bytes;
  const int64_t bytes = std::min(kPrefetchBytes, (weights.rows - row) * weights.row_stride_bytes);
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
}

// What a thread reads: codes up to `end`, in order, and then the ones at `next`, or nothing that is
// known. Without an end they go on for ever: behind a matrix lies most often the next one.
struct ReadAhead {
  const std::byte* end = nullptr;
  const std::byte* next = nullptr;
};

// The codes of rows [row_begin, row_end), and then of the rows that begin with `next`.
inline ReadAhead read_rows(const MatrixView& weights, int64_t row_end, const std::byte* next) {
  return {weights.codes + row_end * weights.row_stride_bytes, next};
}

// sums[i * (row_end - row_begin) + r - row_begin] = exact_row_sum(weights, r, *x[i]) for the rows
// r in [row_begin, row_end). The vectors come from an ActivationBatch that was set with
// weights.cols values. `ahead` says what to fetch in time; it changes no result.
void row_sums(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              std::span<const PreparedVector* const> x, double* sums, const ReadAhead& ahead = {});

// exact_add_term(row_sums[i] * weight * power, sums[i], in_range[i]) for i in [0, n).
void add_terms(const double* row_sums, int64_t n, float weight, double power, int64_t* sums,
               uint8_t* in_range);

}  // namespace k3::cpu
