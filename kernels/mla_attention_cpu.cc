// One cache row serves all heads, and a long cache does not fit any core's own memory. A task is
// therefore one token and a group of heads, and goes over the cache block by block with all heads
// of the group, twice: once for the scores, once for the latent contexts. Eight heads read each
// block (144 KiB at K3's sizes) from the second-level cache but once from beyond, and still leave
// 12 tasks for a single token. Scores and outputs are products of rows with vectors in the lane
// order, so they run on row_products_cpu.cc.
#include "kernels/mla_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/row_products_cpu.h"
#include "kernels/simd_targets.h"
#include "schema/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mla_attention_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef K3_KERNELS_MLA_ATTENTION_CPU_BLOCK_
#define K3_KERNELS_MLA_ATTENTION_CPU_BLOCK_
namespace k3::cpu {

constexpr int64_t kMaxGroupHeads = 8;

// What a group of heads adds up over one block of positions.
struct BlockContext {
  int64_t heads = 0;  // up to kMaxGroupHeads
  int64_t positions = 0;
  const float* probabilities = nullptr;  // [heads, positions], rows probabilities_stride apart
  int64_t probabilities_stride = 0;
  const float* cache = nullptr;  // [positions, cache_width]
  int64_t cache_width = 0;
};

}  // namespace k3::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

// exact_absorb_query for all columns, then the extra part: query [latent + extra].
template <class Row>
inline void absorb_query(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                         const float* q, float* query) {
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
      query[first + i] = static_cast<float>(sums[i]);
    }
  }
  for (int64_t i = 0; i < shape.extra_dim; ++i) {
    query[shape.latent + i] = q[shape.content_dim + i];
  }
}

K3_FLATTEN void absorb_query_bf16(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                                  const float* q, float* query) {
  absorb_query<Bf16Row>(shape, kv_b, head, q, query);
}
K3_FLATTEN void absorb_query_f32(const MlaShape& shape, const MatrixView& kv_b, int64_t head,
                                 const float* q, float* query) {
  absorb_query<F32Row>(shape, kv_b, head, q, query);
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

// Arrays of registers need a vector size known when compiling.
#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE

K3_FLATTEN void add_block_context(const BlockContext& block, int64_t latent, double* totals) {
  for (int64_t h = 0; h < block.heads; ++h) {
    const float* probabilities = block.probabilities + h * block.probabilities_stride;
    for (int64_t i = 0; i < latent; ++i) {
      totals[h * latent + i] += lane_sum(block.positions, [&](int64_t s) {
        return static_cast<double>(probabilities[s]) *
               static_cast<double>(block.cache[s * block.cache_width + i]);
      });
    }
  }
}

#else

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using VDoubles = hn::Vec<Doubles>;
constexpr size_t kDoubles = hn::MaxLanes(Doubles());

// Lane `lane` of lane_sum once the strides from kStride on have been added, for kDoubles columns: a
// lane has two positions of a block. Depth first, so that few sums wait at a time.
template <size_t kLane, size_t kStride>
HWY_INLINE VDoubles tree_sum(const double* probabilities, const double (*values)[kDoubles]) {
  if constexpr (kStride == static_cast<size_t>(kLanes)) {
    const Doubles d;
    constexpr size_t kSecond = kLane + static_cast<size_t>(kLanes);
    const VDoubles first = hn::Mul(hn::Set(d, probabilities[kLane]), hn::LoadU(d, values[kLane]));
    return hn::MulAdd(hn::Set(d, probabilities[kSecond]), hn::LoadU(d, values[kSecond]), first);
  } else {
    return hn::Add(tree_sum<kLane, 2 * kStride>(probabilities, values),
                   tree_sum<kLane + kStride, 2 * kStride>(probabilities, values));
  }
}

// A block's latents become doubles once for all heads. Positions that are not there count as zeros,
// which changes no sum.
K3_FLATTEN void add_block_context(const BlockContext& block, int64_t latent, double* totals) {
  double probabilities[kMaxGroupHeads][kAttentionBlock] = {};
  for (int64_t h = 0; h < block.heads; ++h) {
    for (int64_t s = 0; s < block.positions; ++s) {
      probabilities[h][s] =
          static_cast<double>(block.probabilities[h * block.probabilities_stride + s]);
    }
  }
  constexpr auto kColumns = static_cast<int64_t>(kDoubles);
  double values[kAttentionBlock][kDoubles] = {};
  for (int64_t first = 0; first < latent; first += kColumns) {
    const int64_t columns = latent - first < kColumns ? latent - first : kColumns;
    for (int64_t s = 0; s < block.positions; ++s) {
      const float* row = block.cache + s * block.cache_width + first;
      for (int64_t i = 0; i < columns; ++i) values[s][i] = static_cast<double>(row[i]);
    }
    for (int64_t h = 0; h < block.heads; ++h) {
      double sums[kDoubles];
      hn::StoreU(tree_sum<0, 1>(probabilities[h], values), Doubles(), sums);
      for (int64_t i = 0; i < columns; ++i) totals[h * latent + first + i] += sums[i];
    }
  }
}

#endif

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace k3::cpu {
namespace {

HWY_EXPORT(absorb_query_bf16);
HWY_EXPORT(absorb_query_f32);
HWY_EXPORT(softmax_positions);
HWY_EXPORT(add_block_context);

// The scratch of one task, for a group of heads.
struct Scratch {
  std::vector<float> queries;   // [heads, latent + extra]
  std::vector<float> scores;    // [heads, positions], then the probabilities
  std::vector<double> totals;   // [heads, latent]
  std::vector<float> contexts;  // [heads, latent]
  std::vector<double> sums;     // of a block of scores, or of a head's outputs

  Scratch(const MlaShape& shape, int64_t heads, int64_t positions)
      : queries(static_cast<size_t>(heads * shape.cache_width())),
        scores(static_cast<size_t>(heads * positions)),
        totals(static_cast<size_t>(heads * shape.latent)),
        contexts(static_cast<size_t>(heads * shape.latent)),
        sums(static_cast<size_t>(std::max(heads * kAttentionBlock, shape.v_dim))) {}
};

// Scores of all positions for the group's queries: a product of the cache's rows with them.
void score_positions(const MlaShape& shape, const float* cache, int64_t positions, int64_t heads,
                     Scratch& scratch) {
  const int64_t width = shape.cache_width();
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.query_dim()));
  ActivationBatch queries(Format::kF32, heads, width);
  std::vector<const PreparedVector*> vectors;
  for (int64_t i = 0; i < heads; ++i) {
    queries.set(i, scratch.queries.data() + i * width, width);
    vectors.push_back(&queries[i]);
  }
  const MatrixView rows =
      view_matrix(Format::kF32, positions, width, reinterpret_cast<const std::byte*>(cache));
  for (int64_t first = 0; first < positions; first += kAttentionBlock) {
    const int64_t count = std::min(kAttentionBlock, positions - first);
    row_sums(rows, first, first + count, vectors, scratch.sums.data());
    for (int64_t i = 0; i < heads; ++i) {
      for (int64_t s = 0; s < count; ++s) {
        scratch.scores[static_cast<size_t>(i * positions + first + s)] =
            static_cast<float>(scratch.sums[static_cast<size_t>(i * count + s)] * scale);
      }
    }
  }
}

// Heads [first_head, first_head + heads) of one token that sees `positions` positions. q and o are
// the token's rows.
void attend(const MlaShape& shape, const float* q, const MatrixView& kv_b, const float* cache,
            int64_t positions, int64_t first_head, int64_t heads, Scratch& scratch, float* o) {
  for (int64_t i = 0; i < heads; ++i) {
    const int64_t head = first_head + i;
    const float* head_q = q + head * shape.query_dim();
    float* query = scratch.queries.data() + i * shape.cache_width();
    if (kv_b.format == Format::kBf16) {
      HWY_DYNAMIC_DISPATCH(absorb_query_bf16)(shape, kv_b, head, head_q, query);
    } else {
      HWY_DYNAMIC_DISPATCH(absorb_query_f32)(shape, kv_b, head, head_q, query);
    }
  }
  score_positions(shape, cache, positions, heads, scratch);
  std::array<double, kMaxGroupHeads> denominators;
  for (int64_t i = 0; i < heads; ++i) {
    denominators[static_cast<size_t>(i)] =
        HWY_DYNAMIC_DISPATCH(softmax_positions)(positions, scratch.scores.data() + i * positions);
  }
  std::fill(scratch.totals.begin(), scratch.totals.end(), 0.0);
  for (int64_t first = 0; first < positions; first += kAttentionBlock) {
    const BlockContext block{.heads = heads,
                             .positions = std::min(kAttentionBlock, positions - first),
                             .probabilities = scratch.scores.data() + first,
                             .probabilities_stride = positions,
                             .cache = cache + first * shape.cache_width(),
                             .cache_width = shape.cache_width()};
    HWY_DYNAMIC_DISPATCH(add_block_context)(block, shape.latent, scratch.totals.data());
  }
  // The outputs are a product of kv_b's value rows with the context.
  ActivationBatch contexts(kv_b.format, heads, shape.latent);
  for (int64_t i = 0; i < heads; ++i) {
    float* context = scratch.contexts.data() + i * shape.latent;
    for (int64_t j = 0; j < shape.latent; ++j) {
      context[j] = static_cast<float>(scratch.totals[static_cast<size_t>(i * shape.latent + j)] /
                                      denominators[static_cast<size_t>(i)]);
    }
    contexts.set(i, context, shape.latent);
    const int64_t row = shape.value_row(first_head + i);
    const std::array<const PreparedVector*, 1> vector = {&contexts[i]};
    row_sums(kv_b, row, row + shape.v_dim, vector, scratch.sums.data());
    for (int64_t d = 0; d < shape.v_dim; ++d) {
      o[(first_head + i) * shape.v_dim + d] =
          static_cast<float>(scratch.sums[static_cast<size_t>(d)]);
    }
  }
}

}  // namespace

// Tasks run head group by head group, so that a group's part of kv_b serves all tokens of a chunk.
void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                   const float* cache, int64_t first_position, int64_t tokens, float* o) {
  K3_CHECK(kv_b.format == Format::kBf16 || kv_b.format == Format::kF32);
  // Fewer heads a group for one token alone, so that there is a group for every thread.
  const int64_t fair = (shape.heads * tokens + team_threads() - 1) / team_threads();
  const int64_t group_heads = std::clamp<int64_t>(fair, 1, kMaxGroupHeads);
  const int64_t groups = (shape.heads + group_heads - 1) / group_heads;
  const int64_t positions = first_position + tokens;
  const int64_t cost =
      group_heads * shape.latent * (positions + shape.content_dim + shape.v_dim) / 4;
  parallel_ranges(groups * tokens, cost, [&](int64_t begin, int64_t end) {
    Scratch scratch(shape, group_heads, positions);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t t = task % tokens;
      const int64_t first_head = task / tokens * group_heads;
      attend(shape, q + t * shape.heads * shape.query_dim(), kv_b, cache, first_position + t + 1,
             first_head, std::min(group_heads, shape.heads - first_head), scratch,
             o + t * shape.heads * shape.v_dim);
    }
  });
}

}  // namespace k3::cpu
#endif  // HWY_ONCE
