// Rows of a matrix as floats, for what works on weights rather than on codes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schema/matrix_view.h"

namespace k3 {

// out [count, cols] = the weights of the rows first to first + count - 1, each rounded once to
// float. Any format; cols is a multiple of 32 for mxfp4. One thread.
void decode_rows(const MatrixView& weights, int64_t first, int64_t count, float* out);

// out [cols] = the codes of one row of a matrix in blocks160.
void decode_codes(const MatrixView& weights, int64_t row, float* out);

// [rows, blocks]: the scale of each block of a matrix in blocks160, in float. Throws Error, which
// starts with `subject`, for one that is negative or not finite: any program can write a pack.
std::vector<float> decode_scales(const MatrixView& weights, const std::string& subject);

}  // namespace k3
