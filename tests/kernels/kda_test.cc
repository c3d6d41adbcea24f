#include "kernels/kda.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

using Kda = void (*)(const KdaShape&, const KdaInputs&, int64_t, float*, float*);
constexpr Kda kKdas[] = {reference::kda, cpu::kda};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Kda, BoundedDecayRunsFromOneToTheBound) {
  EXPECT_EQ(exact_bounded_decay(-5.0, 1.0, -20.0f, 0.0f), 1.0f);
  EXPECT_EQ(exact_bounded_decay(-5.0, 1.0, 0.0f, 0.0f), static_cast<float>(std::exp(-2.5)));
  EXPECT_FLOAT_EQ(exact_bounded_decay(-5.0, 1.0, 20.0f, 0.0f), static_cast<float>(std::exp(-5.0)));
}

TEST(Kda, TheRateMultipliesTheBiasedLogit) {
  // e^a_log = 3, logit + dt_bias = 0.5: sigmoid(1.5).
  const double g = -5.0 / (1.0 + std::exp(-1.5));
  EXPECT_EQ(exact_bounded_decay(-5.0, 3.0, 0.25f, 0.25f), static_cast<float>(std::exp(g)));
}

TEST(Kda, SoftplusDecayIsUnbounded) {
  EXPECT_EQ(exact_softplus_decay(1.0, 0.0f, 0.0f), 0.5f);
  EXPECT_FLOAT_EQ(exact_softplus_decay(2.0, 10.0f, 10.0f), static_cast<float>(std::exp(-40.0)));
  EXPECT_EQ(exact_softplus_decay(1.0, -200.0f, 0.0f), 1.0f);
}

// One head of two channels, every decay 1/2 (g = -2 ln 2 sigmoid(0)) and beta 1/2 (sigmoid(0)).
TEST(Kda, TwoTokensByHand) {
  const KdaShape shape{1, 2, -2 * std::log(2.0), 0.0};
  const float q[] = {1, 0, 1, 0};
  const float k[] = {3, 4, 1, 0};  // unit: (0.6, 0.8), (1, 0)
  const float v[] = {1, 2, 1, 1};
  const float zeros[4] = {};
  const KdaInputs in{q, k, v, zeros, zeros, zeros, zeros};
  for (Kda kda : kKdas) {
    float state[4] = {};
    float o[4];
    kda(shape, in, 2, state, o);
    // Token 0: u = v / 2; S = k u^T = (.3 .6; .4 .8). Token 1: S decays to (.15 .3; .2 .4), S^T k =
    // (.15 .3), u = (.425 .35), S = (.575 .65; .2 .4). o is S's first row times 2^-1/2.
    const float want_state[] = {0.575f, 0.65f, 0.2f, 0.4f};
    const float root = std::sqrt(0.5f);
    const float want_o[] = {0.3f * root, 0.6f * root, 0.575f * root, 0.65f * root};
    expect_close(state, want_state, 4e-7, 0);
    expect_close(o, want_o, 4e-7, 0);
  }
}

// With decay 1, beta 0 and the identity as state, o is the query as the recurrence sees it.
TEST(Kda, QueriesHaveTheLengthOfOneOverTheRootOfTheHeadDimension) {
  const KdaShape shape{1, 4, -5.0, 1e-6};
  const float q[] = {10, -20, 30, 5};
  const float kept[] = {-1000, -1000, -1000, -1000};
  const float zeros[4] = {};
  const float no_update[] = {-kInfinity};
  for (Kda kda : kKdas) {
    float state[16] = {};
    for (size_t i = 0; i < 4; ++i) state[5 * i] = 1;
    float o[4];
    kda(shape, {q, q, q, kept, no_update, zeros, zeros}, 1, state, o);
    double squares = 0;
    for (float value : o) squares += static_cast<double>(value) * value;
    EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-7);
    EXPECT_FLOAT_EQ(o[1], -2 * o[0]);
  }
}

TEST(Kda, EpsilonKeepsAZeroKeyFinite) {
  const KdaShape shape{1, 2, -5.0, 1e-6};
  const float zeros[4] = {};
  const float v[] = {1, 1};
  for (Kda kda : kKdas) {
    float state[4] = {};
    float o[2];
    kda(shape, {zeros, zeros, v, zeros, zeros, zeros, zeros}, 1, state, o);
    EXPECT_EQ(o[0], 0.0f);
    EXPECT_EQ(state[3], 0.0f);
  }
}

struct Case {
  KdaShape shape;
  int64_t tokens;
  std::vector<float> q, k, v, decay_logits, beta_logits, a_log, dt_bias, state;

  KdaInputs inputs(int64_t token = 0) const {
    const int64_t at = token * shape.heads * shape.head_dim;
    return {q.data() + at,
            k.data() + at,
            v.data() + at,
            decay_logits.data() + at,
            beta_logits.data() + token * shape.heads,
            a_log.data(),
            dt_bias.data()};
  }
  std::vector<float> output() const { return std::vector<float>(q.size()); }
};

Case make_case(int64_t heads, int64_t head_dim, int64_t tokens, std::optional<double> bound) {
  const int64_t width = heads * head_dim;
  return {{heads, head_dim, bound, 1e-6},   tokens,
          normal_values(tokens * width, 1), normal_values(tokens * width, 2),
          normal_values(tokens * width, 3), normal_values(tokens * width, 4),
          normal_values(tokens * heads, 5), normal_values(heads, 6),
          normal_values(width, 7),          normal_values(width * head_dim, 8)};
}

// The meaning of exact, column by column.
void exact_kda(const Case& in, float* state, float* o) {
  const int64_t dim = in.shape.head_dim;
  std::vector<float> q(static_cast<size_t>(dim));
  std::vector<float> k(q.size());
  std::vector<float> decay(q.size());
  for (int64_t t = 0; t < in.tokens; ++t) {
    for (int64_t h = 0; h < in.shape.heads; ++h) {
      const int64_t at = (t * in.shape.heads + h) * dim;
      const double k_scale = exact_inverse_l2(in.k.data() + at, dim, in.shape.qk_norm_epsilon);
      const double q_scale = exact_inverse_l2(in.q.data() + at, dim, in.shape.qk_norm_epsilon) *
                             (1.0 / std::sqrt(static_cast<double>(dim)));
      const double rate = exp_in_double(in.a_log[static_cast<size_t>(h)]);
      for (int64_t r = 0; r < dim; ++r) {
        const auto i = static_cast<size_t>(r);
        const auto from = static_cast<size_t>(at + r);
        const float bias = in.dt_bias[static_cast<size_t>(h * dim + r)];
        k[i] = exact_scale(in.k[from], k_scale);
        q[i] = exact_scale(in.q[from], q_scale);
        decay[i] = in.shape.decay_lower_bound
                       ? exact_bounded_decay(*in.shape.decay_lower_bound, rate,
                                             in.decay_logits[from], bias)
                       : exact_softplus_decay(rate, in.decay_logits[from], bias);
      }
      const auto beta_at = static_cast<size_t>(t * in.shape.heads + h);
      const KdaOperands operands{q.data(), k.data(), decay.data(),
                                 exact_sigmoid(in.beta_logits[beta_at])};
      for (int64_t c = 0; c < dim; ++c) {
        o[at + c] = exact_kda_column(operands, dim, in.v[static_cast<size_t>(at + c)],
                                     state + h * dim * dim + c);
      }
    }
  }
}

TEST(Kda, CpuGivesTheExactBits) {
  for (const auto& [heads, dim, bound] :
       {std::tuple<int64_t, int64_t, std::optional<double>>{3, 128, -5.0},
        {5, 33, -5.0},
        {2, 70, std::nullopt},
        {1, 1, -5.0}}) {
    const Case in = make_case(heads, dim, 4, bound);
    std::vector<float> want_state = in.state;
    std::vector<float> want = in.output();
    exact_kda(in, want_state.data(), want.data());
    on_every_target([&] {
      std::vector<float> state = in.state;
      std::vector<float> got = in.output();
      cpu::kda(in.shape, in.inputs(), in.tokens, state.data(), got.data());
      expect_same_bits(got, want);
      expect_same_bits(state, want_state);
    });
  }
}

TEST(Kda, EverySplitOfAPromptGivesTheSameBits) {
  const Case in = make_case(2, 40, 9, -5.0);
  std::vector<float> whole_state = in.state;
  std::vector<float> whole = in.output();
  cpu::kda(in.shape, in.inputs(), 9, whole_state.data(), whole.data());
  for (int64_t split = 1; split < 9; ++split) {
    std::vector<float> state = in.state;
    std::vector<float> o = in.output();
    cpu::kda(in.shape, in.inputs(), split, state.data(), o.data());
    cpu::kda(in.shape, in.inputs(split), 9 - split, state.data(), o.data() + split * 80);
    expect_same_bits(o, whole);
    expect_same_bits(state, whole_state);
  }
}

TEST(Kda, ExactIsCloseToReference) {
  for (std::optional<double> bound : {std::optional<double>(-5.0), std::optional<double>()}) {
    const Case in = make_case(2, 128, 12, bound);
    std::vector<float> exact_state = in.state;
    std::vector<float> reference_state = in.state;
    std::vector<float> exact = in.output();
    std::vector<float> reference = in.output();
    cpu::kda(in.shape, in.inputs(), in.tokens, exact_state.data(), exact.data());
    reference::kda(in.shape, in.inputs(), in.tokens, reference_state.data(), reference.data());
    // The header's bound, d^1.5 2^-24 |S| a step, with |S| <= 6 and 12 steps, over the root of d in
    // the queries: 12 * 6 * 128 * 2^-24 = 5.5e-4. Typical errors are its thousandth.
    expect_close(exact, reference, 0, 5.5e-4);
    expect_close(exact, reference, 1e-5, 1e-6);
    expect_close(exact_state, reference_state, 1e-5, 3e-6);
  }
}

TEST(Kda, NanStaysInItsHead) {
  Case in = make_case(2, 16, 2, -5.0);
  in.k[3] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> o = in.output();
  cpu::kda(in.shape, in.inputs(), 2, in.state.data(), o.data());
  for (size_t i = 0; i < o.size(); ++i) EXPECT_EQ(std::isnan(o[i]), i / 16 % 2 == 0) << i;
}

TEST(KdaOutputGate, NormalisesEachHeadAndTakesTheSigmoidOfTheGate) {
  const float o[] = {3, 4, 5, 5};  // two heads
  const float weight[] = {1, 2};
  const float gate[] = {0, 0, 0, kInfinity};
  for (auto* output_gate : {reference::kda_output_gate, cpu::kda_output_gate}) {
    float y[4];
    output_gate(o, weight, gate, 1, 2, 2, 0.0, y);
    const float want[] = {static_cast<float>(1.5 / std::sqrt(12.5)),
                          static_cast<float>(4 / std::sqrt(12.5)), 0.5f, 2.0f};
    expect_close(y, want, 0x1p-23, 0);
  }
}

TEST(KdaOutputGate, CpuGivesTheExactBitsAlsoInPlace) {
  for (int64_t dim : {1, 33, 128}) {
    const int64_t rows = int64_t{3} * 96;
    const auto o = normal_values(rows * dim, 9);
    const auto gate = normal_values(rows * dim, 10, 3.0f);
    const auto weight = normal_values(dim, 11);
    std::vector<float> want(o.size());
    for (int64_t row = 0; row < rows; ++row) {
      const double inverse_rms = exact_inverse_rms(o.data() + row * dim, dim, 1e-5);
      for (int64_t i = 0; i < dim; ++i) {
        const auto at = static_cast<size_t>(row * dim + i);
        want[at] =
            exact_kda_output_gate(o[at], inverse_rms, weight[static_cast<size_t>(i)], gate[at]);
      }
    }
    on_every_target([&] {
      std::vector<float> got = o;
      cpu::kda_output_gate(got.data(), weight.data(), gate.data(), 3, 96, dim, 1e-5, got.data());
      expect_same_bits(got, want);
    });
    std::vector<float> reference(o.size());
    reference::kda_output_gate(o.data(), weight.data(), gate.data(), 3, 96, dim, 1e-5,
                               reference.data());
    expect_close(want, reference, 0x1p-23, 0);
  }
}

}  // namespace
}  // namespace k3
