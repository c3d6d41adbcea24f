// A block a head, a thread a value column: the block makes a token's operands together, then each
// thread goes down its column. At K3's 128 rows a column stays in registers, so that the state is
// read and written once for all tokens of a call; other sizes go through memory, twice a token.
#include "kernels/kda.h"

#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int64_t kMostHeadDim = 1024;  // threads of a block
constexpr int64_t kRegisterRows = 128;

struct Operands {
  float q[kMostHeadDim];
  float k[kMostHeadDim];
  float decay[kMostHeadDim];
  float beta;
  double rate;
  double k_scale;
  double q_scale;
};

__device__ double inverse_l2_by_warp(const float* x, int64_t dim, double epsilon) {
  const double squares = warp_lane_sum(dim, [x](int64_t i) {
    const double value = widen(x[i]);
    return value * value;
  });
  return inverse_l2_of(squares, epsilon);  // right in lane 0
}

// Whole blocks call it; complete after it for all threads.
__device__ void make_operands(const KdaShape& shape, const KdaInputs& in, int64_t token,
                              int64_t head, Operands& operands) {
  const int64_t dim = shape.head_dim;
  const int64_t at = (token * shape.heads + head) * dim;
  const int warps = static_cast<int>(blockDim.x) / kLanes;
  if (warp_index() == 0) {
    const double scale = inverse_l2_by_warp(in.k + at, dim, shape.qk_norm_epsilon);
    if (lane_index() == 0) operands.k_scale = scale;
  }
  if (warp_index() == warps - 1) {
    const double scale = inverse_l2_by_warp(in.q + at, dim, shape.qk_norm_epsilon);
    if (lane_index() == 0) {
      operands.q_scale = scale * (1.0 / std::sqrt(static_cast<double>(dim)));
      operands.beta = exact_sigmoid(in.beta_logits[token * shape.heads + head]);
    }
  }
  __syncthreads();
  const int64_t i = threadIdx.x;
  if (i < dim) {
    operands.k[i] = exact_scale(in.k[at + i], operands.k_scale);
    operands.q[i] = exact_scale(in.q[at + i], operands.q_scale);
    const float logit = in.decay_logits[at + i];
    const float bias = in.dt_bias[head * dim + i];
    operands.decay[i] =
        shape.decay_lower_bound.has_value()
            ? exact_bounded_decay(*shape.decay_lower_bound, operands.rate, logit, bias)
            : exact_softplus_decay(operands.rate, logit, bias);
  }
  __syncthreads();
}

// exact_kda_column on a column held in registers.
__device__ float step_column(const Operands& operands, float value,
                             float (&column)[kRegisterRows]) {
  float sum = 0;
#pragma unroll
  for (int r = 0; r < kRegisterRows; ++r) {
    column[r] *= operands.decay[r];
    sum = std::fma(column[r], operands.k[r], sum);
  }
  const float u = operands.beta * (value - sum);
  float output = 0;
#pragma unroll
  for (int r = 0; r < kRegisterRows; ++r) {
    column[r] = std::fma(operands.k[r], u, column[r]);
    output = std::fma(column[r], operands.q[r], output);
  }
  return output;
}

template <bool kInRegisters>
__global__ void run_heads(KdaShape shape, KdaInputs in, int64_t tokens, float* state, float* o) {
  __shared__ Operands operands;
  const int64_t head = blockIdx.x;
  const int64_t dim = shape.head_dim;
  const int64_t c = threadIdx.x;
  float* column = state + head * dim * dim + c;
  if (threadIdx.x == 0) operands.rate = exp_in_double(static_cast<double>(in.a_log[head]));
  float held[kInRegisters ? kRegisterRows : 1];
  if constexpr (kInRegisters) {
#pragma unroll
    for (int r = 0; r < kRegisterRows; ++r) held[r] = column[r * kRegisterRows];
  }
  __syncthreads();
  for (int64_t t = 0; t < tokens; ++t) {
    make_operands(shape, in, t, head, operands);
    if (c < dim) {
      const int64_t at = (t * shape.heads + head) * dim + c;
      if constexpr (kInRegisters) {
        o[at] = step_column(operands, in.v[at], held);
      } else {
        o[at] = exact_kda_column({operands.q, operands.k, operands.decay, operands.beta}, dim,
                                 in.v[at], column);
      }
    }
    __syncthreads();  // before the next token's operands
  }
  if constexpr (kInRegisters) {
#pragma unroll
    for (int r = 0; r < kRegisterRows; ++r) column[r * kRegisterRows] = held[r];
  }
}

constexpr int kGateWarps = 4;

__global__ void gate_heads(const float* o, const float* norm_weight, const float* gate_logits,
                           int64_t rows, int64_t dim, double epsilon, float* y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kGateWarps + warp_index();
  if (row >= rows) return;
  const int64_t at = row * dim;
  const double squares = warp_lane_sum(dim, [=](int64_t i) {
    const double value = widen(o[at + i]);
    return value * value;
  });
  const double inverse_rms = from_first_lane(inverse_rms_of(squares, dim, epsilon));
  for (int64_t i = lane_index(); i < dim; i += kLanes) {
    y[at + i] = exact_kda_output_gate(o[at + i], inverse_rms, norm_weight[i], gate_logits[at + i]);
  }
}

}  // namespace

cudaError_t kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state, float* o,
                cudaStream_t stream) {
  if (shape.head_dim < 1 || shape.head_dim > kMostHeadDim) return cudaErrorInvalidValue;
  const int threads = static_cast<int>(align_up(shape.head_dim, kLanes));
  return launch(shape.head_dim == kRegisterRows ? run_heads<true> : run_heads<false>, shape.heads,
                threads, stream, shape, in, tokens, state, o);
}

cudaError_t kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                            int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                            float* y, cudaStream_t stream) {
  const int64_t rows = tokens * heads;
  return launch(gate_heads, divide_up(rows, kGateWarps), kGateWarps * kLanes, stream, o,
                norm_weight, gate_logits, rows, head_dim, epsilon, y);
}

}  // namespace k3::cuda
