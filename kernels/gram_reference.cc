#include "kernels/gram.h"

namespace k3::reference {

void add_gram(const GramPlace& place, const float* y, const float* x, int64_t tokens,
              double* sums) {
  for (int64_t r = 0; r < place.width; ++r) {
    for (int64_t c = place.first_col(r); c < place.width; ++c) {
      double& sum = *sums++;
      for (int64_t t = 0; t < tokens; ++t) {
        sum += static_cast<double>(y[t * place.width + r]) * x[t * place.width + c];
      }
    }
  }
}

}  // namespace k3::reference
