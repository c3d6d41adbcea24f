#include "kernels/rms_norm.h"

namespace k3::reference {

void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
              float* y) {
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = x + t * width;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(row[i]) * row[i];
    const double rms = std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (int64_t i = 0; i < width; ++i) {
      y[t * width + i] = static_cast<float>(row[i] / rms * weight[i]);
    }
  }
}

}  // namespace k3::reference
