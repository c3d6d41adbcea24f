// One cache row serves all heads, and a long cache does not fit any core's own memory. A task is
// therefore one token and a group of heads, and goes over the cache block by block with all heads
// of the group, twice: once for the scores, once for the latent contexts. Four heads read each
// block (144 KiB at K3's sizes) from the second-level cache but once from beyond, and still leave
// 24 tasks for a single token.
#include "kernels/mla_attention.h"

#include <algorithm>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mla_attention_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {

// exact_absorb_query for all columns, then the extra part: query [latent + extra], as doubles so
// that scores need no conversion.
template <class Row>
inline void absorb_query(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                         const float* q, double* query) {
  constexpr int64_t kTile = 64;  // columns
  for (int64_t first = 0; first < shape.latent; first += kTile) {
    const int64_t width = shape.latent - first < kTile ? shape.latent - first : kTile;
    double sums[kTile] = {};
    for (int64_t d = 0; d < shape.content_dim; ++d) {
      const Row row = row_of<Row>(kv_b, shape.key_row(head) + d);
      const auto factor = static_cast<double>(q[d]);
      for (int64_t i = 0; i < width; ++i) sums[i] += factor * row[first + i];
    }
    for (int64_t i = 0; i < width; ++i) {
      query[first + i] = static_cast<double>(static_cast<float>(sums[i]));
    }
  }
  for (int64_t i = 0; i < shape.extra_dim; ++i) {
    query[shape.latent + i] = static_cast<double>(q[shape.content_dim + i]);
  }
}

K3_FLATTEN void absorb_query_bf16(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                                  const float* q, double* query) {
  absorb_query<Bf16Row>(shape, kv_b, head, q, query);
}
K3_FLATTEN void absorb_query_f32(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                                 const float* q, double* query) {
  absorb_query<F32Row>(shape, kv_b, head, q, query);
}

K3_FLATTEN void score_positions(const double* query, const float* cache, int64_t width,
                                int64_t count, double scale, float* scores) {
  for (int64_t s = 0; s < count; ++s) {
    scores[s] = exact_mla_score(query, cache + s * width, width, scale);
  }
}

// Turns the scores of all positions into probabilities; returns their denominator.
K3_FLATTEN double softmax_positions(int64_t positions, float* scores) {
  float maximum = scores[0];
  for (int64_t s = 1; s < positions; ++s) maximum = scores[s] > maximum ? scores[s] : maximum;
  K3_INDEPENDENT_ITERATIONS
  for (int64_t s = 0; s < positions; ++s) scores[s] = exact_mla_probability(scores[s], maximum);
  return exact_position_sum(positions,
                            [scores](int64_t s) { return static_cast<double>(scores[s]); });
}

// The columns [0, columns) of one block's context, added to totals; columns <= kTile. lane_sum's
// order, for all columns side by side.
template <int64_t kTile>
inline void add_context_tile(const float* probabilities, const float* cache, int64_t width,
                             int64_t count, int64_t columns, double* totals) {
  double lanes[kLanes][kTile];
  for (int64_t l = 0; l < kLanes; ++l) {
    double sums[kTile] = {};
    for (int64_t s = l; s < count; s += kLanes) {
      const auto probability = static_cast<double>(probabilities[s]);
      const float* row = cache + s * width;
      for (int64_t i = 0; i < columns; ++i) sums[i] += probability * static_cast<double>(row[i]);
    }
    for (int64_t i = 0; i < columns; ++i) lanes[l][i] = sums[i];
  }
  for (int64_t stride = kLanes / 2; stride > 0; stride /= 2) {
    for (int64_t l = 0; l < stride; ++l) {
      for (int64_t i = 0; i < columns; ++i) lanes[l][i] += lanes[l + stride][i];
    }
  }
  for (int64_t i = 0; i < columns; ++i) totals[i] += lanes[0][i];
}

// Adds one block's context, of `count` <= 64 positions, to totals [latent].
K3_FLATTEN void add_block_context(const float* probabilities, const float* cache, int64_t width,
                                  int64_t count, int64_t latent, double* totals) {
  constexpr int64_t kTile = 32;
  int64_t i = 0;
  for (; i + kTile <= latent; i += kTile) {
    add_context_tile<kTile>(probabilities, cache + i, width, count, kTile, totals + i);
  }
  if (i < latent) {
    add_context_tile<kTile>(probabilities, cache + i, width, count, latent - i, totals + i);
  }
}

// o [v_dim] of one head; context [latent] is scratch.
template <class Row>
inline void finish_head(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                        const double* totals, double denominator, float* context, float* o) {
  for (int64_t i = 0; i < shape.latent; ++i) {
    context[i] = static_cast<float>(totals[i] / denominator);
  }
  for (int64_t d = 0; d < shape.v_dim; ++d) {
    o[d] = exact_mla_value(row_of<Row>(kv_b, shape.value_row(head) + d), context, shape.latent);
  }
}

K3_FLATTEN void finish_head_bf16(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                                 const double* totals, double denominator, float* context,
                                 float* o) {
  finish_head<Bf16Row>(shape, kv_b, head, totals, denominator, context, o);
}
K3_FLATTEN void finish_head_f32(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                                const double* totals, double denominator, float* context,
                                float* o) {
  finish_head<F32Row>(shape, kv_b, head, totals, denominator, context, o);
}

}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(absorb_query_bf16);
HWY_EXPORT(absorb_query_f32);
HWY_EXPORT(score_positions);
HWY_EXPORT(softmax_positions);
HWY_EXPORT(add_block_context);
HWY_EXPORT(finish_head_bf16);
HWY_EXPORT(finish_head_f32);

constexpr int64_t kGroupHeads = 4;

// The scratch of one task, for a group of heads.
struct Scratch {
  std::vector<double> queries;  // [kGroupHeads, latent + extra]
  std::vector<float> scores;    // [kGroupHeads, positions], then the probabilities
  std::vector<double> totals;   // [kGroupHeads, latent]
  std::vector<float> context;   // [latent]

  Scratch(const MlaShape& shape, int64_t positions)
      : queries(static_cast<size_t>(kGroupHeads * shape.cache_width())),
        scores(static_cast<size_t>(kGroupHeads * positions)),
        totals(static_cast<size_t>(kGroupHeads * shape.latent)),
        context(static_cast<size_t>(shape.latent)) {}
};

// Heads [first_head, first_head + heads) of one token that sees `positions` positions. q and o are
// the token's rows.
void attend(const MlaShape& shape, const float* q, const MatrixView& kv_b, const float* cache,
            int64_t positions, int64_t first_head, int64_t heads, Scratch& scratch, float* o) {
  const int64_t width = shape.cache_width();
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.query_dim()));
  const bool bf16 = kv_b.format == Format::kBf16;
  const auto query = [&](int64_t i) { return scratch.queries.data() + i * width; };
  const auto scores = [&](int64_t i) { return scratch.scores.data() + i * positions; };
  const auto totals = [&](int64_t i) { return scratch.totals.data() + i * shape.latent; };

  for (int64_t i = 0; i < heads; ++i) {
    const int64_t head = first_head + i;
    const float* head_q = q + head * shape.query_dim();
    if (bf16) {
      HWY_DYNAMIC_DISPATCH(absorb_query_bf16)(shape, kv_b, head, head_q, query(i));
    } else {
      HWY_DYNAMIC_DISPATCH(absorb_query_f32)(shape, kv_b, head, head_q, query(i));
    }
  }
  for (int64_t first = 0; first < positions; first += kAttentionBlock) {
    const int64_t count = std::min(kAttentionBlock, positions - first);
    for (int64_t i = 0; i < heads; ++i) {
      HWY_DYNAMIC_DISPATCH(score_positions)
      (query(i), cache + first * width, width, count, scale, scores(i) + first);
    }
  }
  double denominators[kGroupHeads];
  for (int64_t i = 0; i < heads; ++i) {
    denominators[i] = HWY_DYNAMIC_DISPATCH(softmax_positions)(positions, scores(i));
  }
  std::fill(scratch.totals.begin(), scratch.totals.end(), 0.0);
  for (int64_t first = 0; first < positions; first += kAttentionBlock) {
    const int64_t count = std::min(kAttentionBlock, positions - first);
    for (int64_t i = 0; i < heads; ++i) {
      HWY_DYNAMIC_DISPATCH(add_block_context)
      (scores(i) + first, cache + first * width, width, count, shape.latent, totals(i));
    }
  }
  for (int64_t i = 0; i < heads; ++i) {
    const int64_t head = first_head + i;
    float* head_o = o + head * shape.v_dim;
    if (bf16) {
      HWY_DYNAMIC_DISPATCH(finish_head_bf16)
      (shape, kv_b, head, totals(i), denominators[i], scratch.context.data(), head_o);
    } else {
      HWY_DYNAMIC_DISPATCH(finish_head_f32)
      (shape, kv_b, head, totals(i), denominators[i], scratch.context.data(), head_o);
    }
  }
}

}  // namespace

// Tasks run head group by head group, so that a group's part of kv_b serves all tokens of a chunk.
void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                   const float* cache, int64_t first_position, int64_t tokens, float* o) {
  K3_CHECK(kv_b.format == Format::kBf16 || kv_b.format == Format::kF32);
  const int64_t groups = (shape.heads + kGroupHeads - 1) / kGroupHeads;
  const int64_t positions = first_position + tokens;
  const int64_t cost =
      kGroupHeads * shape.latent * (positions + shape.content_dim + shape.v_dim) / 4;
  parallel_ranges(groups * tokens, cost, [&](int64_t begin, int64_t end) {
    Scratch scratch(shape, positions);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t t = task % tokens;
      const int64_t first_head = task / tokens * kGroupHeads;
      attend(shape, q + t * shape.heads * shape.query_dim(), kv_b, cache, first_position + t + 1,
             first_head, std::min(kGroupHeads, shape.heads - first_head), scratch,
             o + t * shape.heads * shape.v_dim);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
