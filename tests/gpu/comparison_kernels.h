// Kernels that no program uses: what the real ones are measured against.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/matmul.h"

namespace k3::test {

// Words from a counter, each under `mask` and then over `bits`; `words` of them.
cudaError_t fill_words(uint32_t seed, uint32_t mask, uint32_t bits, int64_t words, uint32_t* to,
                       cudaStream_t stream);

// The exact product with a thread a row, which goes along it alone: neighbouring threads read bytes
// a row apart. `codes` and `step` of x are on the device.
cudaError_t multiply_thread_per_row(const MatrixView& weights, const ActivationVector& x, float* y,
                                    cudaStream_t stream);

}  // namespace k3::test
