// The exact matrix products on a GPU (matmul.h says what they compute).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/matmul.h"

namespace k3::cuda {

// y[r] = the exact product of row r with one quantized activation vector, on `stream`. Every
// pointer of `weights` and of `x`, and `y` [rows], is device memory. Returns the error of the
// launch.
cudaError_t matmul(const MatrixView& weights, const ActivationVector& x, float* y,
                   cudaStream_t stream);

}  // namespace k3::cuda
