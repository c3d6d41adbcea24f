// Backwards through the recurrence of one head. With A = diag(decay) S the decayed state of a token
// and G the gradient of its updated state, from all later tokens,
//   o = S^T q:        dq = S do,            G += q do^T
//   S = A + k u^T:    dk = G u,             du = G^T k
//   u = beta (v - A^T k):   d(beta) = du . (v - A^T k),   dv = beta du,   dk -= A dv,
//                     G -= k dv^T, now the gradient of A
//   A = diag(decay) S_before:   d(decay) = rowwise G . S_before,   G = diag(decay) G
// S is replayed forwards first and kept, in float as the operation itself keeps it; recomputing it
// backwards would divide by decays near 0. Heads share nothing and are what threads take.
//
// Vectors run over the value columns of a state, whose rows are padded with zeros to whole vectors
// of every instruction set.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementary.h"
#include "kernels/gradients.h"
#include "kernels/kda.h"
#include "kernels/parallel.h"
#include "kernels/simd_targets.h"

#ifndef K3_KERNELS_GRADIENT_KDA_TYPES_
#define K3_KERNELS_GRADIENT_KDA_TYPES_
namespace k3::gradient {
namespace {

constexpr int64_t kPadding = 16;  // floats

// What one token of one head needs: all [width], zero from head_dim on.
struct KdaToken {
  const float* q = nullptr;  // scaled
  const float* k = nullptr;  // of unit length
  const float* decay = nullptr;
  float* u = nullptr;
  float* residual = nullptr;  // v - A^T k
  float beta = 0;
};

// Gradients of the operands of one token: [width] each.
struct KdaTokenGradients {
  float* q = nullptr;
  float* k = nullptr;
  float* decay = nullptr;
  float* v = nullptr;
  float* u = nullptr;
};

}  // namespace
}  // namespace k3::gradient
#endif  // K3_KERNELS_GRADIENT_KDA_TYPES_

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient_kda.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::gradient::HWY_NAMESPACE {
namespace {  // so that calls are inlined in position-independent code, too

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kPadding>;

// decay [dim] of one token, and its slope against the logit.
K3_FLATTEN void bounded_decays(double bound, double rate, const float* logits, const float* dt_bias,
                               int64_t dim, float* decay, float* slope) {
  for (int64_t i = 0; i < dim; ++i) {
    const double z = static_cast<double>(logits[i]) + static_cast<double>(dt_bias[i]);
    const double sigmoid = sigmoid_in_double(rate * z);
    const double value = exp_in_double(bound * sigmoid);
    decay[i] = static_cast<float>(value);
    slope[i] = static_cast<float>(value * bound * sigmoid * (1.0 - sigmoid) * rate);
  }
}

K3_FLATTEN void softplus_decays(double rate, const float* logits, const float* dt_bias, int64_t dim,
                                float* decay, float* slope) {
  for (int64_t i = 0; i < dim; ++i) {
    const double z = static_cast<double>(logits[i]) + static_cast<double>(dt_bias[i]);
    const double value = exp_in_double(-rate * softplus_in_double(z));
    decay[i] = static_cast<float>(value);
    slope[i] = static_cast<float>(-value * rate * sigmoid_in_double(z));
  }
}

// The state after a token from the one before it, [dim, width] each; fills u and residual, which
// holds v at first.
void replay_token(const KdaToken& token, int64_t dim, int64_t width, const float* before,
                  float* after) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto beta = hn::Set(d, token.beta);
  for (int64_t c = 0; c < width; c += lanes) {
    auto sum = hn::Zero(d);
    for (int64_t r = 0; r < dim; ++r) {
      const auto decayed =
          hn::Mul(hn::LoadU(d, before + r * width + c), hn::Set(d, token.decay[r]));
      hn::StoreU(decayed, d, after + r * width + c);
      sum = hn::MulAdd(decayed, hn::Set(d, token.k[r]), sum);
    }
    const auto residual = hn::Sub(hn::LoadU(d, token.residual + c), sum);
    const auto u = hn::Mul(beta, residual);
    hn::StoreU(residual, d, token.residual + c);
    hn::StoreU(u, d, token.u + c);
    for (int64_t r = 0; r < dim; ++r) {
      float* const cell = after + r * width + c;
      hn::StoreU(hn::MulAdd(hn::Set(d, token.k[r]), u, hn::LoadU(d, cell)), d, cell);
    }
  }
}

template <class V>
HWY_INLINE float sum_of(V sums) {
  return hn::GetLane(hn::SumOfLanes(D(), sums));
}

// q, k and u get theirs from the output and the update; `carried`, G, the output's.
void step_back_over_update(const KdaToken& token, int64_t dim, int64_t width, const float* after,
                           const float* go, float* carried, const KdaTokenGradients& gradients) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < width; c += lanes) hn::StoreU(hn::Zero(d), d, gradients.u + c);
  for (int64_t r = 0; r < dim; ++r) {
    const auto q = hn::Set(d, token.q[r]);
    const auto k = hn::Set(d, token.k[r]);
    auto q_sum = hn::Zero(d);
    auto k_sum = hn::Zero(d);
    for (int64_t c = 0; c < width; c += lanes) {
      float* const cell = carried + r * width + c;
      const auto output = hn::LoadU(d, go + c);
      const auto g = hn::MulAdd(q, output, hn::LoadU(d, cell));
      hn::StoreU(g, d, cell);
      q_sum = hn::MulAdd(hn::LoadU(d, after + r * width + c), output, q_sum);
      k_sum = hn::MulAdd(g, hn::LoadU(d, token.u + c), k_sum);
      hn::StoreU(hn::MulAdd(g, k, hn::LoadU(d, gradients.u + c)), d, gradients.u + c);
    }
    gradients.q[r] = sum_of(q_sum);
    gradients.k[r] = sum_of(k_sum);
  }
}

// decay and k get theirs from the decayed state, whose read is worth -gradients.v; `carried`
// becomes the gradient of the state before.
void step_back_over_decay(const KdaToken& token, int64_t dim, int64_t width, const float* before,
                          float* carried, const KdaTokenGradients& gradients) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < dim; ++r) {
    const auto k = hn::Set(d, token.k[r]);
    const auto decay = hn::Set(d, token.decay[r]);
    auto decay_sum = hn::Zero(d);
    auto read_sum = hn::Zero(d);
    for (int64_t c = 0; c < width; c += lanes) {
      float* const cell = carried + r * width + c;
      const auto read = hn::LoadU(d, gradients.v + c);
      const auto state = hn::LoadU(d, before + r * width + c);
      const auto g = hn::NegMulAdd(k, read, hn::LoadU(d, cell));
      decay_sum = hn::MulAdd(g, state, decay_sum);
      read_sum = hn::MulAdd(state, read, read_sum);
      hn::StoreU(hn::Mul(decay, g), d, cell);
    }
    gradients.decay[r] = sum_of(decay_sum);
    gradients.k[r] -= token.decay[r] * sum_of(read_sum);
  }
}

void step_back(const KdaToken& token, int64_t dim, int64_t width, const float* before,
               const float* after, const float* go, float* carried,
               const KdaTokenGradients& gradients) {
  step_back_over_update(token, dim, width, after, go, carried, gradients);
  for (int64_t c = 0; c < width; ++c) gradients.v[c] = token.beta * gradients.u[c];
  step_back_over_decay(token, dim, width, before, carried, gradients);
}

}  // namespace
}  // namespace k3::gradient::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::gradient {
namespace {

HWY_EXPORT(bounded_decays);
HWY_EXPORT(softplus_decays);
HWY_EXPORT(replay_token);
HWY_EXPORT(step_back);

// One head over all tokens: operands, states and the walk back.
class KdaHead {
 public:
  KdaHead(const KdaShape& shape, const KdaInputs& in, int64_t tokens, int64_t head)
      : shape_(shape),
        in_(in),
        tokens_(tokens),
        head_(head),
        dim_(shape.head_dim),
        width_((shape.head_dim + kPadding - 1) / kPadding * kPadding) {
    for (std::vector<float>* values : {&q_, &k_, &decay_, &slope_, &u_, &residual_}) {
      values->resize(static_cast<size_t>(tokens * width_));
    }
    inverse_q_.resize(static_cast<size_t>(tokens));
    inverse_k_.resize(static_cast<size_t>(tokens));
    beta_.resize(static_cast<size_t>(tokens));
    states_.resize(static_cast<size_t>((tokens + 1) * dim_ * width_));
    for (int64_t t = 0; t < tokens; ++t) {
      set_operands(t);
      HWY_DYNAMIC_DISPATCH(replay_token)(token(t), dim_, width_, state(t), state(t + 1));
    }
  }

  void add_gradients(const float* go, const KdaGradients& gradients) {
    std::vector<float> carried(static_cast<size_t>(dim_ * width_));
    std::vector<float> parts(static_cast<size_t>(6 * width_));
    float* const output = parts.data();
    const KdaTokenGradients part{.q = output + width_,
                                 .k = output + 2 * width_,
                                 .decay = output + 3 * width_,
                                 .v = output + 4 * width_,
                                 .u = output + 5 * width_};
    for (int64_t t = tokens_ - 1; t >= 0; --t) {
      std::copy_n(go + place(t), dim_, output);
      HWY_DYNAMIC_DISPATCH(step_back)
      (token(t), dim_, width_, state(t), state(t + 1), output, carried.data(), part);
      add_token(t, part, gradients);
    }
  }

 private:
  // Where this head's values of a token start in what the operation reads.
  int64_t place(int64_t t) const { return (t * shape_.heads + head_) * dim_; }
  float* state(int64_t t) { return states_.data() + t * dim_ * width_; }
  KdaToken token(int64_t t) {
    const int64_t at = t * width_;
    return {.q = q_.data() + at,
            .k = k_.data() + at,
            .decay = decay_.data() + at,
            .u = u_.data() + at,
            .residual = residual_.data() + at,
            .beta = beta_[static_cast<size_t>(t)]};
  }

  void set_operands(int64_t t) {
    const int64_t from = place(t);
    const int64_t at = t * width_;
    const double q_scale = 1.0 / std::sqrt(static_cast<double>(dim_));
    const double inverse_q = exact_inverse_l2(in_.q + from, dim_, shape_.qk_norm_epsilon);
    const double inverse_k = exact_inverse_l2(in_.k + from, dim_, shape_.qk_norm_epsilon);
    inverse_q_[static_cast<size_t>(t)] = inverse_q;
    inverse_k_[static_cast<size_t>(t)] = inverse_k;
    for (int64_t i = 0; i < dim_; ++i) {
      q_[static_cast<size_t>(at + i)] = exact_scale(in_.q[from + i], inverse_q * q_scale);
      k_[static_cast<size_t>(at + i)] = exact_scale(in_.k[from + i], inverse_k);
    }
    std::copy_n(in_.v + from, dim_, residual_.data() + at);
    beta_[static_cast<size_t>(t)] = exact_sigmoid(in_.beta_logits[t * shape_.heads + head_]);
    const double rate = exp_in_double(static_cast<double>(in_.a_log[head_]));
    const float* dt_bias = in_.dt_bias + head_ * dim_;
    if (shape_.decay_lower_bound) {
      HWY_DYNAMIC_DISPATCH(bounded_decays)
      (*shape_.decay_lower_bound, rate, in_.decay_logits + from, dt_bias, dim_, decay_.data() + at,
       slope_.data() + at);
    } else {
      HWY_DYNAMIC_DISPATCH(softplus_decays)
      (rate, in_.decay_logits + from, dt_bias, dim_, decay_.data() + at, slope_.data() + at);
    }
  }

  void add_token(int64_t t, const KdaTokenGradients& part, const KdaGradients& gradients) const {
    const int64_t to = place(t);
    const int64_t at = t * width_;
    if (gradients.q != nullptr) {
      const double scale = 1.0 / std::sqrt(static_cast<double>(dim_));
      add_through_norm(in_.q + to, inverse_q_[static_cast<size_t>(t)], scale, part.q,
                       gradients.q + to);
    }
    if (gradients.k != nullptr) {
      add_through_norm(in_.k + to, inverse_k_[static_cast<size_t>(t)], 1.0, part.k,
                       gradients.k + to);
    }
    for (int64_t i = 0; gradients.v != nullptr && i < dim_; ++i) gradients.v[to + i] += part.v[i];
    for (int64_t i = 0; gradients.decay_logits != nullptr && i < dim_; ++i) {
      gradients.decay_logits[to + i] += part.decay[i] * slope_[static_cast<size_t>(at + i)];
    }
    if (gradients.beta_logits != nullptr) {
      const double g_beta = dot(part.u, residual_.data() + at);
      const auto beta = static_cast<double>(beta_[static_cast<size_t>(t)]);
      gradients.beta_logits[t * shape_.heads + head_] +=
          static_cast<float>(g_beta * beta * (1.0 - beta));
    }
  }

  // Of y = scale x / |x|, whose 1 / |x| is `inverse`: scale inverse (gy - n (n . gy)), n = inverse
  // x.
  void add_through_norm(const float* x, double inverse, double scale, const float* gy,
                        float* gx) const {
    const double along = dot(x, gy) * inverse * inverse;
    for (int64_t i = 0; i < dim_; ++i) {
      gx[i] += static_cast<float>(scale * inverse * (static_cast<double>(gy[i]) - along * x[i]));
    }
  }

  double dot(const float* a, const float* b) const {
    return lane_sum(
        dim_, [=](int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
  }

  const KdaShape& shape_;
  const KdaInputs& in_;
  int64_t tokens_;
  int64_t head_;
  int64_t dim_;
  int64_t width_;
  // [tokens, width], zero from dim on.
  std::vector<float> q_, k_, decay_, slope_, u_, residual_;
  std::vector<double> inverse_q_, inverse_k_;
  std::vector<float> beta_;
  std::vector<float> states_;  // [tokens + 1, dim, width], zeros before the first token
};

}  // namespace

void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, const float* go,
         const KdaGradients& gradients) {
  const int64_t cells = tokens * shape.head_dim * shape.head_dim;
  parallel_ranges(shape.heads, cells, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      KdaHead(shape, in, tokens, head).add_gradients(go, gradients);
    }
  });
}

}  // namespace k3::gradient
#endif  // HWY_ONCE
