// The state is row-major [key, value], so neighbouring lanes of a vector are neighbouring value
// columns, and each lane goes through the key rows in the order that exact_kda_column defines. A
// tile of 64 columns keeps enough sums in registers to hide the latency of fma and its 32 KiB in
// the first-level cache for the second pass. A task is one head over all tokens of the call, whose
// state therefore stays in the core's cache during prefill.
#include "kernels/kda.h"

#include <vector>

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kda_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

// The columns [0, width) of value, state and output; width <= kTile.
template <int64_t kTile>
void kda_tile(const KdaOperands& operands, int64_t head_dim, int64_t width, const float* value,
              float* state, float* output) {
  float sum[kTile] = {};
  for (int64_t r = 0; r < head_dim; ++r) {
    float* row = state + r * head_dim;
    const float decay = operands.decay[r];
    const float k = operands.k[r];
    for (int64_t c = 0; c < width; ++c) {
      row[c] *= decay;
      sum[c] = std::fma(row[c], k, sum[c]);
    }
  }
  float u[kTile];
  for (int64_t c = 0; c < width; ++c) u[c] = operands.beta * (value[c] - sum[c]);
  for (int64_t c = 0; c < width; ++c) sum[c] = 0;
  for (int64_t r = 0; r < head_dim; ++r) {
    float* row = state + r * head_dim;
    const float q = operands.q[r];
    const float k = operands.k[r];
    for (int64_t c = 0; c < width; ++c) {
      row[c] = std::fma(k, u[c], row[c]);
      sum[c] = std::fma(row[c], q, sum[c]);
    }
  }
  for (int64_t c = 0; c < width; ++c) output[c] = sum[c];
}

// Computes the operands of one head and token into q, k and decay [head_dim].
inline KdaOperands kda_operands(const KdaShape& shape, const KdaInputs& in, int64_t token,
                                int64_t head, float* q, float* k, float* decay) {
  const int64_t dim = shape.head_dim;
  const int64_t at = (token * shape.heads + head) * dim;
  const double k_scale = exact_inverse_l2(in.k + at, dim, shape.qk_norm_epsilon);
  const double q_scale = exact_inverse_l2(in.q + at, dim, shape.qk_norm_epsilon) *
                         (1.0 / std::sqrt(static_cast<double>(dim)));
  const double rate = exp_in_double(static_cast<double>(in.a_log[head]));
  const float* logits = in.decay_logits + at;
  const float* dt_bias = in.dt_bias + head * dim;
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < dim; ++i) k[i] = exact_scale(in.k[at + i], k_scale);
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < dim; ++i) q[i] = exact_scale(in.q[at + i], q_scale);
  if (shape.decay_lower_bound) {
    const double bound = *shape.decay_lower_bound;
    K3_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < dim; ++i) {
      decay[i] = exact_bounded_decay(bound, rate, logits[i], dt_bias[i]);
    }
  } else {
    K3_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < dim; ++i) decay[i] = exact_softplus_decay(rate, logits[i], dt_bias[i]);
  }
  return {q, k, decay, exact_sigmoid(in.beta_logits[token * shape.heads + head])};
}

// One head over all tokens. state [head_dim, head_dim] is the head's; scratch [3, head_dim].
K3_FLATTEN void kda_head(const KdaShape& shape, const KdaInputs& in, int64_t tokens, int64_t head,
                         float* scratch, float* state, float* o) {
  constexpr int64_t kTile = 64;
  const int64_t dim = shape.head_dim;
  for (int64_t t = 0; t < tokens; ++t) {
    const KdaOperands operands =
        kda_operands(shape, in, t, head, scratch, scratch + dim, scratch + 2 * dim);
    const int64_t at = (t * shape.heads + head) * dim;
    int64_t c = 0;
    for (; c + kTile <= dim; c += kTile) {
      kda_tile<kTile>(operands, dim, kTile, in.v + at + c, state + c, o + at + c);
    }
    if (c < dim) kda_tile<kTile>(operands, dim, dim - c, in.v + at + c, state + c, o + at + c);
  }
}

K3_FLATTEN void kda_output_gate_head(const float* o, const float* norm_weight,
                                     const float* gate_logits, int64_t head_dim, double epsilon,
                                     float* y) {
  const double inverse_rms = exact_inverse_rms(o, head_dim, epsilon);
  K3_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < head_dim; ++i) {
    y[i] = exact_kda_output_gate(o[i], inverse_rms, norm_weight[i], gate_logits[i]);
  }
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {

HWY_EXPORT(kda_head);
HWY_EXPORT(kda_output_gate_head);

void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state, float* o) {
  const int64_t dim = shape.head_dim;
  parallel_ranges(shape.heads, tokens * dim * dim / 3, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(3 * dim));
    for (int64_t head = begin; head < end; ++head) {
      HWY_DYNAMIC_DISPATCH(kda_head)
      (shape, in, tokens, head, scratch.data(), state + head * dim * dim, o);
    }
  });
}

void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                     int64_t tokens, int64_t heads, int64_t head_dim, double epsilon, float* y) {
  parallel_ranges(tokens * heads, head_dim * 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * head_dim;
      HWY_DYNAMIC_DISPATCH(kda_output_gate_head)
      (o + at, norm_weight, gate_logits + at, head_dim, epsilon, y + at);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
