// The product of schema/float_product.h on all threads.
#pragma once

#include <cstdint>

#include "schema/float_product.h"

namespace k3 {

// C += A B as add_float_product, with disjoint tiles of C on all threads.
void add_product_parallel(int64_t rows, int64_t cols, int64_t depth, FloatMatrix a, FloatMatrix b,
                          float* c, int64_t c_stride);

}  // namespace k3
