#include "kernels/attention_residual.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

using Mix = void (*)(std::span<const float* const>, const float*, const float*, int64_t, int64_t,
                     double, float*);
constexpr Mix kMixes[] = {reference::attention_residual_mix, cpu::attention_residual_mix};

TEST(AttentionResidual, ScoresNormalisedSourcesWithoutAScaleAndMixesRawOnes) {
  // Both sources have the direction (+-1, +-1) once normalised, so the scores are
  // +-(norm * proj summed) = +-(ln 3) / 2 and the weights 3/4 and 1/4, whatever the lengths.
  const float first[] = {10, 10};
  const float second[] = {-2, -2};
  const float norm[] = {0.5f, 0.5f};
  const auto half_ln3 = static_cast<float>(std::log(3.0) / 2);
  const float proj[] = {half_ln3, half_ln3};
  const std::vector<const float*> sources = {first, second};
  for (Mix mix : kMixes) {
    float y[2];
    mix(sources, norm, proj, 1, 2, 0.0, y);
    EXPECT_FLOAT_EQ(y[0], 7.0f);
    EXPECT_FLOAT_EQ(y[1], 7.0f);
  }
}

TEST(AttentionResidual, OneSourceIsReturnedAsItIs) {
  const auto source = normal_values(100, 1);
  const auto norm = normal_values(100, 2);
  const std::vector<const float*> sources = {source.data()};
  for (Mix mix : kMixes) {
    std::vector<float> y(100);
    mix(sources, norm.data(), norm.data(), 1, 100, 1e-5, y.data());
    expect_same_bits(y, source);
  }
}

TEST(AttentionResidual, LargeScoresDoNotOverflow) {
  const float first[] = {1, 0};
  const float second[] = {-1, 0};
  const float norm[] = {1000, 0};
  const std::vector<const float*> sources = {first, second};
  for (Mix mix : kMixes) {
    float y[2];
    mix(sources, norm, norm, 1, 2, 0.0, y);
    EXPECT_EQ(y[0], 1.0f);
  }
}

TEST(AttentionResidual, NanInOneSourceReachesTheResult) {
  for (int bad : {0, 1}) {
    float values[2][2] = {{1, 2}, {3, 4}};
    values[bad][0] = std::numeric_limits<float>::quiet_NaN();
    const float norm[] = {1, 1};
    const std::vector<const float*> sources = {values[0], values[1]};
    float y[2];
    cpu::attention_residual_mix(sources, norm, norm, 1, 2, 1e-5, y);
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_TRUE(std::isnan(y[1]));
  }
}

struct Case {
  std::vector<std::vector<float>> values;
  std::vector<const float*> sources;
  std::vector<float> norm;
  std::vector<float> proj;
};

Case make_case(uint32_t count, int64_t tokens, int64_t hidden) {
  Case made;
  for (uint32_t j = 0; j < count; ++j) {
    made.values.push_back(normal_values(tokens * hidden, 10 + j, static_cast<float>(1 + j)));
  }
  for (const auto& source : made.values) made.sources.push_back(source.data());
  made.norm = normal_values(hidden, 3);
  made.proj = normal_values(hidden, 4, 0.1f);
  return made;
}

TEST(AttentionResidual, CpuGivesTheExactBits) {
  on_every_target([] {
    for (int64_t hidden : {1, 33, 127, 2500}) {
      const int64_t tokens = 5;
      const Case in = make_case(9, tokens, hidden);
      std::vector<float> want(static_cast<size_t>(tokens * hidden));
      for (int64_t t = 0; t < tokens; ++t) {
        double weights[9];
        for (size_t j = 0; j < 9; ++j) {
          weights[j] = exact_source_score(in.sources[j] + t * hidden, in.norm.data(),
                                          in.proj.data(), hidden, 1e-5);
        }
        exact_source_weights(weights, 9);
        for (int64_t i = t * hidden; i < (t + 1) * hidden; ++i) {
          double sum = 0;
          for (size_t j = 0; j < 9; ++j) sum = exact_mix_step(sum, weights[j], in.sources[j][i]);
          want[static_cast<size_t>(i)] = static_cast<float>(sum);
        }
      }
      std::vector<float> got(want.size());
      cpu::attention_residual_mix(in.sources, in.norm.data(), in.proj.data(), tokens, hidden, 1e-5,
                                  got.data());
      expect_same_bits(got, want);
    }
  });
}

TEST(AttentionResidual, ExactIsCloseToReference) {
  const int64_t hidden = 7168;
  const Case in = make_case(9, 2, hidden);
  std::vector<float> exact(static_cast<size_t>(2 * hidden));
  std::vector<float> reference(exact.size());
  cpu::attention_residual_mix(in.sources, in.norm.data(), in.proj.data(), 2, hidden, 1e-5,
                              exact.data());
  reference::attention_residual_mix(in.sources, in.norm.data(), in.proj.data(), 2, hidden, 1e-5,
                                    reference.data());
  // One ulp of the result, and weights off by 2^-36 of sources below 64.
  expect_close(exact, reference, 0x1p-23, 0x1p-30);
}

}  // namespace
}  // namespace k3
