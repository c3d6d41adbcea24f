#include "kernels/short_conv.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

using ShortConv = void (*)(const float*, const float*, int64_t, int64_t, int64_t, float*, float*);
constexpr ShortConv kShortConvs[] = {reference::short_conv, cpu::short_conv};

TEST(ShortConv, AnImpulseMeetsTheLastTapFirst) {
  const float weight[] = {1, 2, 3, 4};  // oldest to newest
  const float x[] = {1, 0, 0, 0, 0};
  for (ShortConv short_conv : kShortConvs) {
    float window[3] = {};
    float y[5];
    short_conv(x, weight, 5, 1, 4, window, y);
    for (int t = 0; t < 4; ++t) EXPECT_EQ(y[t], exact_silu(weight[3 - t]));
    EXPECT_EQ(y[4], 0.0f);
  }
}

TEST(ShortConv, TheWindowHoldsTheLastInputsOldestFirst) {
  const float weight[] = {1, 1, 1, 1, 1, 1, 1, 1};
  const float x[] = {1, 10, 2, 20};  // [2 tokens, 2 channels]
  for (ShortConv short_conv : kShortConvs) {
    float window[] = {-3, -30, -2, -20, -1, -10};
    float y[4];
    short_conv(x, weight, 2, 2, 4, window, y);
    const float want[] = {-1, -10, 1, 10, 2, 20};
    expect_same_bits(window, want);
  }
}

TEST(ShortConv, OneTapNeedsNoWindow) {
  const float weight[] = {2};
  const float x[] = {1, -1};
  float y[2];
  cpu::short_conv(x, weight, 2, 1, 1, nullptr, y);
  EXPECT_EQ(y[1], exact_silu(-2.0f));
}

TEST(ShortConv, NanStaysWithinItsTaps) {
  const float weight[] = {1, 1};
  const float x[] = {std::numeric_limits<float>::quiet_NaN(), 1, 1};
  float window[1] = {};
  float y[3];
  cpu::short_conv(x, weight, 3, 1, 2, window, y);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_FALSE(std::isnan(y[2]));
}

TEST(ShortConv, EverySplitOfAPromptGivesTheSameBits) {
  const int64_t tokens = 9;
  const int64_t channels = 70;
  const auto x = normal_values(tokens * channels, 1);
  const auto weight = normal_values(channels * 4, 2);
  std::vector<float> whole_window(static_cast<size_t>(3 * channels));
  std::vector<float> whole(x.size());
  cpu::short_conv(x.data(), weight.data(), tokens, channels, 4, whole_window.data(), whole.data());
  for (int64_t split = 1; split < tokens; ++split) {
    std::vector<float> window(whole_window.size());
    std::vector<float> y(x.size());
    const int64_t at = split * channels;
    cpu::short_conv(x.data(), weight.data(), split, channels, 4, window.data(), y.data());
    cpu::short_conv(x.data() + at, weight.data(), tokens - split, channels, 4, window.data(),
                    y.data() + at);
    expect_same_bits(y, whole);
    expect_same_bits(window, whole_window);
  }
}

TEST(ShortConv, CpuGivesTheExactBits) {
  on_every_target([] {
    for (int64_t channels : {1, 65, 3001}) {
      for (int64_t taps : {2, 4}) {
        const int64_t tokens = 6;
        const auto x = normal_values(tokens * channels, 3);
        const auto weight = normal_values(channels * taps, 4);
        const auto old_window = normal_values((taps - 1) * channels, 5);
        std::vector<float> want(x.size());
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t c = 0; c < channels; ++c) {
            double sum = 0;
            for (int64_t tap = 0; tap < taps; ++tap) {
              sum = exact_short_conv_step(
                  sum, weight[static_cast<size_t>(c * taps + tap)],
                  short_conv_input(x.data(), old_window.data(), t, tap, channels, taps)[c]);
            }
            want[static_cast<size_t>(t * channels + c)] = exact_short_conv_end(sum);
          }
        }
        std::vector<float> window = old_window;
        std::vector<float> got(x.size());
        cpu::short_conv(x.data(), weight.data(), tokens, channels, taps, window.data(), got.data());
        expect_same_bits(got, want);

        window = old_window;
        std::vector<float> reference(x.size());
        reference::short_conv(x.data(), weight.data(), tokens, channels, taps, window.data(),
                              reference.data());
        expect_close(got, reference, 0x1p-23, 0);
      }
    }
  });
}

}  // namespace
}  // namespace k3
