// The left factor of a product as a list of its terms that are not 0, if these are few: changes of
// a sweep of coordinate descent, of which most are none.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schema/float_product.h"

namespace k3 {

class ListedFactor {
 public:
  ListedFactor() = default;  // of no rows

  // a is [rows, depth], depth at most ListedTerms::kMostDepth.
  ListedFactor(int64_t rows, int64_t depth, FloatMatrix a);

  bool empty() const { return indices_.empty(); }

  // C += A B, with the bits of add_float_product but for the sign of zeros. b.col_stride is 1.
  // Returns the multiply-adds it took.
  double add_product_with(int64_t cols, FloatMatrix b, float* c, int64_t c_stride) const;

 private:
  int64_t rows_ = 0;
  int64_t depth_ = 0;
  std::vector<float> dense_;   // A itself where its terms are many, else empty
  std::vector<int64_t> ends_;  // as in ListedTerms
  std::vector<int32_t> indices_;
  std::vector<float> values_;
  std::array<bool, ListedTerms::kMostDepth> used_ = {};
};

}  // namespace k3
