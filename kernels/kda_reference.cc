#include <vector>

#include "kernels/kda.h"

namespace k3::reference {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double inverse_l2(const float* x, int64_t dim, double epsilon) {
  double squares = 0;
  for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
  return 1.0 / std::sqrt(squares + epsilon);
}

float decay(const KdaShape& shape, double a_log, double z) {
  const double rate = std::exp(a_log);
  const double softplus = z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z));
  const double g =
      shape.decay_lower_bound ? *shape.decay_lower_bound * sigmoid(rate * z) : -rate * softplus;
  return static_cast<float>(std::exp(g));
}

}  // namespace

void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state, float* o) {
  const int64_t dim = shape.head_dim;
  const double query_scale = 1.0 / std::sqrt(static_cast<double>(dim));
  std::vector<double> u(static_cast<size_t>(dim));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t at = (t * shape.heads + h) * dim;
      const double k_scale = inverse_l2(in.k + at, dim, shape.qk_norm_epsilon);
      const double q_scale = inverse_l2(in.q + at, dim, shape.qk_norm_epsilon) * query_scale;
      const double beta = static_cast<float>(sigmoid(in.beta_logits[t * shape.heads + h]));
      float* s = state + h * dim * dim;
      for (int64_t r = 0; r < dim; ++r) {
        const double z = static_cast<double>(in.decay_logits[at + r]) + in.dt_bias[h * dim + r];
        const float alpha = decay(shape, in.a_log[h], z);
        for (int64_t c = 0; c < dim; ++c) s[r * dim + c] *= alpha;
      }
      for (int64_t c = 0; c < dim; ++c) {
        double sum = 0;
        for (int64_t r = 0; r < dim; ++r) sum += s[r * dim + c] * (in.k[at + r] * k_scale);
        u[static_cast<size_t>(c)] = beta * (in.v[at + c] - sum);
      }
      for (int64_t c = 0; c < dim; ++c) {
        double output = 0;
        for (int64_t r = 0; r < dim; ++r) {
          float& cell = s[r * dim + c];
          cell = static_cast<float>(cell + in.k[at + r] * k_scale * u[static_cast<size_t>(c)]);
          output += cell * (in.q[at + r] * q_scale);
        }
        o[at + c] = static_cast<float>(output);
      }
    }
  }
}

void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                     int64_t tokens, int64_t heads, int64_t head_dim, double epsilon, float* y) {
  for (int64_t row = 0; row < tokens * heads; ++row) {
    const int64_t at = row * head_dim;
    double squares = 0;
    for (int64_t i = 0; i < head_dim; ++i) squares += static_cast<double>(o[at + i]) * o[at + i];
    const double rms = std::sqrt(squares / static_cast<double>(head_dim) + epsilon);
    for (int64_t i = 0; i < head_dim; ++i) {
      y[at + i] =
          static_cast<float>(o[at + i] / rms * norm_weight[i] * sigmoid(gate_logits[at + i]));
    }
  }
}

}  // namespace k3::reference
