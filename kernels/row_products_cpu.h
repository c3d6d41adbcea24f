// Blocks of rows of a product on this machine's vector unit: what matmul_cpu.cc and
// routed_experts_cpu.cc split over threads. The bits are those of the exact_ functions in matmul.h
// and routed_experts.h, whichever instruction set the machine has.
#pragma once

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

// The vectors of a batch as a format's product reads them. Owns their codes, which start on 64-byte
// boundaries and are padded with zeros to whole blocks of the format.
class ActivationBatch {
 public:
  // `count` vectors of `cols` values for products with weights of `format`; each is to be set.
  ActivationBatch(Format format, int64_t count, int64_t cols);

  // Vector `i` := `x`: quantized here if the format reads codes, else `x` is kept and has to
  // outlive the batch. `cols` may be less than the batch's. Different vectors may be set by
  // different threads.
  void set(int64_t i, const float* x, int64_t cols);

  const ActivationVector& operator[](int64_t i) const { return vectors_[static_cast<size_t>(i)]; }
  std::span<const ActivationVector> vectors() const { return vectors_; }

 private:
  std::vector<ActivationVector> vectors_;
  hwy::AlignedFreeUniquePtr<int16_t[]> codes_;
  int64_t stride_ = 0;  // codes a vector
};

// sums[i * (row_end - row_begin) + r - row_begin] = exact_row_sum(weights, r, *x[i]) for the rows
// r in [row_begin, row_end). Codes come from an ActivationBatch.
void row_sums(const MatrixView& weights, int64_t row_begin, int64_t row_end,
              std::span<const ActivationVector* const> x, double* sums);

// exact_add_term(row_sums[i] * weight * power, sums[i], in_range[i]) for i in [0, n).
void add_terms(const double* row_sums, int64_t n, float weight, double power, int64_t* sums,
               uint8_t* in_range);

}  // namespace k3::cpu
