#include "kernels/kda.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "kernels/gradients.h"
#include "tests/kernels/finite_differences.h"

namespace k3 {
namespace {

struct KdaCase {
  KdaShape shape;
  int64_t tokens;
  Floats q, k, v, decay_logits, beta_logits, a_log, dt_bias;

  KdaCase(int64_t heads, int64_t head_dim, int64_t token_count, std::optional<double> bound)
      : shape{heads, head_dim, bound, 1e-6}, tokens(token_count) {
    const int64_t values = tokens * heads * head_dim;
    q = normal_values(values, 1);
    k = normal_values(values, 2);
    v = normal_values(values, 3);
    decay_logits = normal_values(values, 4);
    beta_logits = normal_values(tokens * heads, 5);
    a_log = normal_values(heads, 6, 0.3F);
    dt_bias = normal_values(heads * head_dim, 7, 0.5F);
  }

  KdaInputs inputs() const {
    return {q.data(),           k.data(),     v.data(),      decay_logits.data(),
            beta_logits.data(), a_log.data(), dt_bias.data()};
  }
  Floats forward() const {
    Floats state(static_cast<size_t>(shape.heads * shape.head_dim * shape.head_dim));
    Floats o(q.size());
    reference::kda(shape, inputs(), tokens, state.data(), o.data());
    return o;
  }
  void backward(const Floats& go, const std::vector<float*>& gradients) const {
    gradient::kda(shape, inputs(), tokens, go.data(),
                  {gradients[0], gradients[1], gradients[2], gradients[3], gradients[4]});
  }
};

// Two heads of a size that is no whole number of vectors.
TEST(GradientKda, AgreesWithDifferencesForBothDecays) {
  for (const std::optional<double> bound : {std::optional<double>(-3.0), std::optional<double>()}) {
    KdaCase a(2, 19, 6, bound);
    check_gradients(
        {&a.q, &a.k, &a.v, &a.decay_logits, &a.beta_logits}, [&] { return a.forward(); },
        [&](const Floats& go, const std::vector<float*>& gradients) { a.backward(go, gradients); });
  }
}

TEST(GradientKda, ATokenAloneHasNoGradientForItsDecay) {
  const KdaCase a(1, 3, 1, -3.0);
  Floats g_decay(3);
  const Floats go = {1, 2, 3};
  a.backward(go, {nullptr, nullptr, nullptr, g_decay.data(), nullptr});
  EXPECT_EQ(g_decay, (Floats{0, 0, 0}));
}

TEST(GradientKda, HasTheSameBitsOnAnyNumberOfThreads) {
  const KdaCase a(5, 32, 40, -3.0);
  const Floats go = normal_values(std::ssize(a.q), 8);
  expect_same_bits_on_any_threads(
      {a.q.size(), a.q.size(), a.q.size(), a.q.size(), a.beta_logits.size()},
      [&](const std::vector<float*>& gradients) { a.backward(go, gradients); });
}

}  // namespace
}  // namespace k3
