#include <cmath>

#include "kernels/activation.h"

namespace k3::reference {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

}  // namespace

void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const double g = gate[i];
    const double u = up[i];
    if (rule.activation == Activation::kSitu) {
      const double capped_gate = rule.situ_beta * std::tanh(g / rule.situ_beta);
      const double capped_up = rule.situ_linear_beta * std::tanh(u / rule.situ_linear_beta);
      y[i] = static_cast<float>(capped_gate * sigmoid(g) * capped_up);
    } else {
      y[i] = static_cast<float>(g * sigmoid(g) * u);
    }
  }
}

void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<float>(x[i] * sigmoid(gate_logits[i]));
  }
}

void add(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

}  // namespace k3::reference
