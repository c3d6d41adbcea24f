// Rotates activations where the rotation cannot be folded into the weights that made them: a vector
// is cut into blocks and each is multiplied by H / sqrt(block), the Hadamard matrix of
// schema/hadamard.h. The matrix that reads it has the same rotation in its columns.
//
// Exact: a block in double, the sums and differences of hadamard_butterflies in their order, times
// hadamard_scale, one rounding to float. Against `reference` (each output a sum in index order) the
// doubles differ by at most block 2^-52 sum|x| / sqrt(block), below 2^-40 of the largest output for
// blocks up to 4096 unless the sum cancels: one ulp of the largest output.
#pragma once

#include <cstdint>

#include "schema/hadamard.h"
#include "schema/host_device.h"

namespace k3 {

// One block: `work` [block] is overwritten; y may be x.
K3_HOST_DEVICE inline void exact_hadamard_block(const float* x, int64_t block, double* work,
                                                float* y) {
  for (int64_t i = 0; i < block; ++i) work[i] = static_cast<double>(x[i]);
  hadamard_butterflies(work, block);
  const double scale = hadamard_scale(block);
  for (int64_t i = 0; i < block; ++i) y[i] = static_cast<float>(work[i] * scale);
}

}  // namespace k3

namespace k3::reference {
// x, y [tokens, width]; `block` is a power of two up to kLargestHadamard that divides width; y may
// be x.
void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y);
}  // namespace k3::cpu
