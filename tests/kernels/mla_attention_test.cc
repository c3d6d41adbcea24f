#include "kernels/mla_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/kernels/exact_backend.h"
#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

using Mla = void (*)(const MlaShape&, const float*, const MatrixView&, const float*, int64_t,
                     int64_t, float*);
constexpr Mla kMlas[] = {reference::mla_attention, cpu::mla_attention};

MatrixView view_f32(const float* values, int64_t rows, int64_t cols) {
  return view_matrix(Format::kF32, rows, cols, reinterpret_cast<const std::byte*>(values));
}

TEST(MlaAttention, TheScaleCountsContentAndExtraDimensions) {
  // One content and three extra dimensions: scale 1/2, so the scores are 0 and ln 3.
  const MlaShape shape{1, 1, 3, 1, 1};
  const float q[] = {static_cast<float>(2 * std::log(3.0)), 0, 0, 0};
  const float kv_b[] = {1, 10};
  const float cache[] = {0, 7, 7, 7, 1, 7, 7, 7};
  for (Mla mla : kMlas) {
    float o[1];
    mla(shape, q, view_f32(kv_b, 2, 1), cache, 1, 1, o);
    EXPECT_FLOAT_EQ(o[0], 7.5f);
  }
}

TEST(MlaAttention, TheExtraDimensionsAreScoredButNotMixed) {
  const MlaShape shape{1, 1, 3, 1, 1};
  const float q[] = {0, 0, 0, static_cast<float>(2 * std::log(3.0))};
  const float kv_b[] = {1, 1};
  const float cache[] = {4, 9, 9, 0, 8, 9, 9, 1};
  for (Mla mla : kMlas) {
    float o[1];
    mla(shape, q, view_f32(kv_b, 2, 1), cache, 1, 1, o);
    EXPECT_FLOAT_EQ(o[0], 7.0f);
  }
}

TEST(MlaAttention, ATokenSeesNoLaterPosition) {
  const MlaShape shape{1, 1, 1, 1, 1};
  const float q[] = {0, 0, 0, 0};
  const float kv_b[] = {1, 1};
  const float cache[] = {1, 0, 3, 0, std::numeric_limits<float>::quiet_NaN(), 0};
  for (Mla mla : kMlas) {
    float o[2];
    mla(shape, q, view_f32(kv_b, 2, 1), cache, 0, 2, o);
    EXPECT_EQ(o[0], 1.0f);
    EXPECT_EQ(o[1], 2.0f);
  }
}

TEST(MlaAttention, EachHeadUsesItsOwnRows) {
  const MlaShape shape{2, 1, 0, 2, 1};
  const float q[] = {1, 1};
  const float kv_b[] = {0, 1, 2, 0, 3, 4};  // per head: key row, two value rows
  const float cache[] = {10};
  for (Mla mla : kMlas) {
    float o[4];
    mla(shape, q, view_f32(kv_b, 6, 1), cache, 0, 1, o);
    const float want[] = {10, 20, 30, 40};
    expect_same_bits(o, want);
  }
}

TEST(MlaAttention, LargeScoresDoNotOverflow) {
  const MlaShape shape{1, 1, 0, 1, 1};
  const float q[] = {1e4f};
  const float kv_b[] = {1, 1};
  const float cache[] = {1, 2, -3};
  for (Mla mla : kMlas) {
    float o[1];
    mla(shape, q, view_f32(kv_b, 2, 1), cache, 2, 1, o);
    EXPECT_EQ(o[0], 2.0f);
  }
}

TEST(MlaAttention, NanReachesTheResult) {
  const MlaShape shape{1, 1, 0, 1, 1};
  const float q[] = {1};
  const float kv_b[] = {1, 1};
  for (size_t bad : {0, 1, 2}) {
    float cache[] = {1, 2, 3};
    cache[bad] = std::numeric_limits<float>::quiet_NaN();
    float o[1];
    cpu::mla_attention(shape, q, view_f32(kv_b, 2, 1), cache, 2, 1, o);
    EXPECT_TRUE(std::isnan(o[0]));
  }
}

struct Case {
  MlaShape shape;
  std::vector<float> q;
  std::vector<float> kv_b;
  std::vector<uint16_t> kv_b_codes;
  std::vector<float> cache;

  MatrixView matrix(Format format) const {
    const int64_t rows = shape.heads * (shape.content_dim + shape.v_dim);
    return view_matrix(format, rows, shape.latent,
                       format == Format::kBf16
                           ? reinterpret_cast<const std::byte*>(kv_b_codes.data())
                           : reinterpret_cast<const std::byte*>(kv_b.data()));
  }
  std::vector<float> output(int64_t tokens) const {
    return std::vector<float>(static_cast<size_t>(tokens * shape.heads * shape.v_dim));
  }
};

Case make_case(const MlaShape& shape, int64_t positions, int64_t tokens) {
  Case made{shape,
            normal_values(tokens * shape.heads * shape.query_dim(), 1, 2.0f),
            normal_values(shape.heads * (shape.content_dim + shape.v_dim) * shape.latent, 2, 0.1f),
            {},
            normal_values(positions * shape.cache_width(), 3)};
  for (float& weight : made.kv_b) {
    made.kv_b_codes.push_back(encode_bf16(weight));
    weight = decode_bf16(made.kv_b_codes.back());
  }
  return made;
}

std::vector<float> exact_mla(const Case& in, int64_t first_position, int64_t tokens) {
  std::vector<float> o = in.output(tokens);
  ExactBackend().mla_attention(in.shape, in.q.data(), in.matrix(Format::kF32), in.cache.data(),
                               first_position, tokens, o.data());
  return o;
}

TEST(MlaAttention, CpuGivesTheExactBits) {
  for (const auto& [shape, first, tokens] :
       {std::tuple{MlaShape{6, 16, 8, 16, 32}, int64_t{0}, int64_t{3}},
        {MlaShape{5, 7, 3, 9, 41}, int64_t{62}, int64_t{5}},
        {MlaShape{1, 1, 0, 1, 1}, int64_t{127}, int64_t{2}},
        {MlaShape{9, 16, 8, 16, 100}, int64_t{300}, int64_t{2}}}) {
    const Case in = make_case(shape, first + tokens, tokens);
    const std::vector<float> want = exact_mla(in, first, tokens);
    on_every_target([&, first = first, tokens = tokens] {
      for (Format format : {Format::kBf16, Format::kF32}) {
        std::vector<float> got = in.output(tokens);
        cpu::mla_attention(in.shape, in.q.data(), in.matrix(format), in.cache.data(), first, tokens,
                           got.data());
        expect_same_bits(got, want);
      }
    });
  }
}

TEST(MlaAttention, EverySplitOfAPromptGivesTheSameBits) {
  // Around the end of a block, so that the splits fall into two of them.
  const int64_t first = kAttentionBlock - 4;
  const Case in = make_case({2, 8, 4, 8, 24}, first + 9, 9);
  std::vector<float> whole = in.output(9);
  cpu::mla_attention(in.shape, in.q.data(), in.matrix(Format::kBf16), in.cache.data(), first, 9,
                     whole.data());
  for (int64_t split = 1; split < 9; ++split) {
    std::vector<float> o = in.output(9);
    cpu::mla_attention(in.shape, in.q.data(), in.matrix(Format::kBf16), in.cache.data(), first,
                       split, o.data());
    cpu::mla_attention(in.shape, in.q.data() + split * 24, in.matrix(Format::kBf16),
                       in.cache.data(), first + split, 9 - split, o.data() + split * 16);
    expect_same_bits(o, whole);
  }
}

TEST(MlaAttention, ExactIsCloseToReference) {
  const Case in = make_case({4, 32, 16, 32, 64}, 200, 3);
  std::vector<float> exact = in.output(3);
  std::vector<float> reference = in.output(3);
  cpu::mla_attention(in.shape, in.q.data(), in.matrix(Format::kBf16), in.cache.data(), 197, 3,
                     exact.data());
  reference::mla_attention(in.shape, in.q.data(), in.matrix(Format::kBf16), in.cache.data(), 197, 3,
                           reference.data());
  // The header's bound with |score| <= 12 and |v| <= 4: 2^-24 (3 + 24) 4 = 6.4e-6.
  expect_close(exact, reference, 0, 6.4e-6);
}

}  // namespace
}  // namespace k3
