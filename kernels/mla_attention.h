// Multi-head latent attention without positions, over a cache of latents: one row of latent + extra
// floats for each position, shared by all heads.
//
// Keys are never expanded. For head h, with kv_b's rows [content | v] of that head:
//   absorbed[j] = sum_d q_content[d] kv_b[content row d, j]
//   score(s) = (absorbed . latent_s + q_extra . extra_s) / sqrt(content + extra)
//   context[j] = sum_s softmax(score)(s) latent_s[j];   o[d] = kv_b[v row d, :] . context
// (DeepSeek-V2's absorption; K3's extra dimensions are never rotated, but they count in the scale.)
//
// Exact, with one rounding to float for each line; all products below are exact in double:
//   absorbed     double, d ascending
//   score        lane_sum over latent + extra in double, times 1 / sqrt(content + extra)
//   probability  e^(score - maximum), the maximum over all positions first
//   denominator  double: blocks of 64 absolute positions, each a lane_sum of its probabilities, are
//                added in ascending order from 0 (not rounded to float)
//   context      double: as the denominator, of probability * latent; then / denominator
//   o            lane_sum over latent in double
// A block starts at a multiple of 64, whatever the call's first position: chunks change no bits.
//
// `reference` expands keys and values in double with index order. Against it, an error of 2^-24
// relative in absorbed, score, probability, context and o each makes one of
// 2^-24 (3 + 2 max|score|) max|v| in o.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/elementary.h"
#include "kernels/lane_sum.h"
#include "schema/formats/bf16.h"
#include "schema/host_device.h"
#include "schema/matrix_view.h"

namespace k3 {

struct MlaShape {
  int64_t heads = 0;
  int64_t content_dim = 0;
  int64_t extra_dim = 0;
  int64_t v_dim = 0;
  int64_t latent = 0;

  K3_HOST_DEVICE int64_t query_dim() const { return content_dim + extra_dim; }
  K3_HOST_DEVICE int64_t cache_width() const { return latent + extra_dim; }
  // The first of head h's rows of kv_b: content_dim rows for keys, then v_dim for values.
  K3_HOST_DEVICE int64_t key_row(int64_t head) const { return head * (content_dim + v_dim); }
  K3_HOST_DEVICE int64_t value_row(int64_t head) const { return key_row(head) + content_dim; }
};

inline constexpr int64_t kAttentionBlock = 64;  // positions

// A row of a bf16 or f32 matrix as doubles.
struct Bf16Row {
  const uint16_t* codes;
  K3_HOST_DEVICE explicit Bf16Row(const std::byte* row)
      : codes(reinterpret_cast<const uint16_t*>(row)) {}
  K3_HOST_DEVICE double operator[](int64_t i) const {
    return static_cast<double>(decode_bf16(codes[i]));
  }
};
struct F32Row {
  const float* values;
  K3_HOST_DEVICE explicit F32Row(const std::byte* row)
      : values(reinterpret_cast<const float*>(row)) {}
  K3_HOST_DEVICE double operator[](int64_t i) const { return static_cast<double>(values[i]); }
};
template <class Row>
K3_HOST_DEVICE inline Row row_of(const MatrixView& matrix, int64_t row) {
  return Row(matrix.codes + row * matrix.row_stride_bytes);
}

// absorbed[column] for the query [content_dim] of one head, whose key rows start at first_row.
template <class Row>
K3_HOST_DEVICE inline float exact_absorb_query(const MatrixView& kv_b, int64_t first_row,
                                               int64_t content_dim, const float* query,
                                               int64_t column) {
  double sum = 0;
  for (int64_t d = 0; d < content_dim; ++d) {
    sum += static_cast<double>(query[d]) * row_of<Row>(kv_b, first_row + d)[column];
  }
  return static_cast<float>(sum);
}

// query: absorbed, then the extra part, as `width` numbers (float or double of the same value).
template <class Real>
K3_HOST_DEVICE inline float exact_mla_score(const Real* query, const float* cache_row,
                                            int64_t width, double scale) {
  const double sum = lane_sum(width, [=](int64_t i) {
    return static_cast<double>(query[i]) * static_cast<double>(cache_row[i]);
  });
  return static_cast<float>(sum * scale);
}

K3_HOST_DEVICE inline float exact_mla_probability(float score, float maximum) {
  return static_cast<float>(
      exp_in_double(static_cast<double>(score) - static_cast<double>(maximum)));
}

// The sum of term(s) over positions [0, count) in the order of the softmax: blocks, lanes within.
template <class Term>
K3_HOST_DEVICE inline double exact_position_sum(int64_t count, const Term& term) {
  double total = 0;
  for (int64_t first = 0; first < count; first += kAttentionBlock) {
    const int64_t left = count - first;
    total += lane_sum(left < kAttentionBlock ? left : kAttentionBlock,
                      [&](int64_t s) { return term(first + s); });
  }
  return total;
}

// One output of one head from its context [latent].
template <class Row>
K3_HOST_DEVICE inline float exact_mla_value(const Row& row, const float* context, int64_t latent) {
  return static_cast<float>(
      lane_sum(latent, [=](int64_t i) { return static_cast<double>(context[i]) * row[i]; }));
}

}  // namespace k3

namespace k3::reference {
// q [tokens, heads * (content + extra)]; kv_b [heads * (content + v), latent] in bf16 or f32; cache
// [positions, latent + extra], the normed latent first, which already holds these tokens, at
// positions first_position onwards; o [tokens, heads * v_dim]. Token t sees the positions 0 to
// first_position + t.
void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                   const float* cache, int64_t first_position, int64_t tokens, float* o);
}  // namespace k3::reference

// The exact bits.
namespace k3::cpu {
void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                   const float* cache, int64_t first_position, int64_t tokens, float* o);
}  // namespace k3::cpu
