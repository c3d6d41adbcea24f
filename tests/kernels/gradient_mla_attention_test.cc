#include "kernels/mla_attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/gradients.h"
#include "tests/kernels/finite_differences.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

struct MlaCase {
  MlaShape shape;
  int64_t tokens;
  ZeroedBytes bytes;
  MatrixView kv_b;
  Floats q, cache;

  MlaCase(const MlaShape& mla_shape, int64_t token_count, Format format)
      : shape(mla_shape), tokens(token_count) {
    const int64_t rows = shape.heads * (shape.content_dim + shape.v_dim);
    bytes = ZeroedBytes(rows * packed_row_bytes(format, shape.latent));
    kv_b = view_matrix(format, rows, shape.latent, bytes.data());
    const Floats weights = normal_values(rows * shape.latent, 1, 0.3F);
    for (size_t i = 0; i < weights.size(); ++i) {
      const uint16_t bf16 = encode_bf16(weights[i]);
      if (format == Format::kF32) std::memcpy(bytes.data() + 4 * i, &weights[i], 4);
      if (format == Format::kBf16) std::memcpy(bytes.data() + 2 * i, &bf16, 2);
    }
    q = normal_values(tokens * shape.heads * shape.query_dim(), 2);
    cache = normal_values(tokens * shape.cache_width(), 3);
  }

  Floats forward() const {
    Floats o(static_cast<size_t>(tokens * shape.heads * shape.v_dim));
    reference::mla_attention(shape, q.data(), kv_b, cache.data(), 0, tokens, o.data());
    return o;
  }
  void backward(const Floats& go, const std::vector<float*>& gradients) const {
    gradient::mla_attention(shape, q.data(), kv_b, cache.data(), tokens, go.data(), gradients[0],
                            gradients[1]);
  }
};

TEST(GradientMlaAttention, AgreesWithDifferencesForBothFormatsWithAndWithoutExtra) {
  for (const Format format : {Format::kF32, Format::kBf16}) {
    for (const int64_t extra : {0, 3}) {
      MlaCase a({.heads = 3, .content_dim = 5, .extra_dim = extra, .v_dim = 7, .latent = 9}, 6,
                format);
      check_gradients(
          {&a.q, &a.cache}, [&] { return a.forward(); },
          [&](const Floats& go, const std::vector<float*>& gradients) {
            a.backward(go, gradients);
          });
    }
  }
}

// More positions than a block of queries.
TEST(GradientMlaAttention, AgreesWithDifferencesOverSeveralBlocks) {
  MlaCase a({.heads = 1, .content_dim = 2, .extra_dim = 1, .v_dim = 2, .latent = 3}, 70,
            Format::kF32);
  check_gradients(
      {&a.q, &a.cache}, [&] { return a.forward(); },
      [&](const Floats& go, const std::vector<float*>& gradients) { a.backward(go, gradients); });
}

// More heads than are held at a time.
TEST(GradientMlaAttention, HasTheSameBitsOnAnyNumberOfThreads) {
  const MlaCase a({.heads = 19, .content_dim = 16, .extra_dim = 8, .v_dim = 16, .latent = 24}, 70,
                  Format::kBf16);
  const Floats go = normal_values(a.tokens * a.shape.heads * a.shape.v_dim, 4);
  expect_same_bits_on_any_threads(
      {a.q.size(), a.cache.size()},
      [&](const std::vector<float*>& gradients) { a.backward(go, gradients); });
}

TEST(GradientMlaAttention, AddsTheHeadsThatAreNotHeldTogether) {
  MlaCase a({.heads = 18, .content_dim = 2, .extra_dim = 1, .v_dim = 2, .latent = 3}, 3,
            Format::kF32);
  check_gradients(
      {&a.q, &a.cache}, [&] { return a.forward(); },
      [&](const Floats& go, const std::vector<float*>& gradients) { a.backward(go, gradients); });
}

}  // namespace
}  // namespace k3
