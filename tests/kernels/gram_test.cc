#include "kernels/gram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

std::vector<int16_t> exponents_of(const std::vector<float>& x, int64_t tokens, int64_t width) {
  std::vector<float> maxima(static_cast<size_t>(width));
  EXPECT_TRUE(cpu::raise_maxima(x.data(), tokens, width, maxima.data()));
  std::vector<int16_t> exponents;
  for (const float most : maxima) {
    exponents.push_back(static_cast<int16_t>(exact_channel_exponent(most)));
  }
  return exponents;
}

// The contract, entry by entry.
std::vector<int64_t> exact_gram(const GramPlace& place, const std::vector<float>& y,
                                const std::vector<int16_t>& y_exponents,
                                const std::vector<float>& x,
                                const std::vector<int16_t>& x_exponents) {
  const auto codes = [&](const std::vector<float>& values, const std::vector<int16_t>& exponents) {
    std::vector<int16_t> result;
    for (size_t i = 0; i < values.size(); ++i) {
      result.push_back(exact_channel_code(values[i], exponents[i % exponents.size()]));
    }
    return result;
  };
  const std::vector<int16_t> a = codes(y, y_exponents);
  const std::vector<int16_t> b = codes(x, x_exponents);
  const auto tokens = std::ssize(x) / place.width;
  std::vector<int64_t> sums;
  for (int64_t r = 0; r < place.width; ++r) {
    for (int64_t c = place.first_col(r); c < place.width; ++c) {
      sums.push_back(
          exact_product_sum(a.data() + r, place.width, b.data() + c, place.width, tokens));
    }
  }
  return sums;
}

// Adds all tokens in blocks of `block_tokens`, rows in ranges of `range_rows`.
std::vector<int64_t> cpu_gram(const GramPlace& place, const std::vector<float>& y,
                              const std::vector<int16_t>& y_exponents, const std::vector<float>& x,
                              const std::vector<int16_t>& x_exponents, int64_t block_tokens,
                              int64_t range_rows) {
  std::vector<int64_t> sums(static_cast<size_t>(place.entries({0, place.width})));
  cpu::GramCodes a(place.width);
  cpu::GramCodes b(place.width);
  const auto tokens = std::ssize(x) / place.width;
  for (int64_t t = 0; t < tokens; t += block_tokens) {
    const int64_t count = std::min(block_tokens, tokens - t);
    a.set(y.data() + t * place.width, count, y_exponents.data());
    b.set(x.data() + t * place.width, count, x_exponents.data());
    for (int64_t r = 0; r < place.width; r += range_rows) {
      cpu::add_gram(place, {r, std::min(r + range_rows, place.width)}, a, b,
                    sums.data() + place.row_offset(r));
    }
  }
  return sums;
}

TEST(Gram, TheStepIsTheLeastThatHoldsTheLargestValue) {
  const std::vector<float> x = {0.0F, 32639.0F, 32640.0F, -1.0F,  //
                                0.0F, 1.0F,     2.0F,     -2.0F};
  EXPECT_EQ(exponents_of(x, 2, 4), (std::vector<int16_t>{kZeroChannelExponent, 0, 1, -13}));
}

TEST(Gram, AMaximumSeesEveryTokenAndKeepsWhatWasThere) {
  std::vector<float> maxima = {5.0F, 0.5F};
  const float x[] = {-1.0F, 1.0F, 4.0F, -7.0F};
  EXPECT_TRUE(cpu::raise_maxima(x, 2, 2, maxima.data()));
  EXPECT_EQ(maxima, (std::vector<float>{5.0F, 7.0F}));
}

TEST(Gram, AValueThatIsNotFiniteIsReportedWhateverFollows) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    on_every_target([bad] {
      std::vector<float> x(3 * 40, 1.0F);
      x[17] = bad;
      std::vector<float> maxima(40);
      EXPECT_FALSE(cpu::raise_maxima(x.data(), 3, 40, maxima.data()));
    });
  }
}

TEST(Gram, AHandCaseComesOutOfBothMeanings) {
  const std::vector<float> x = {1, 2, -3, 4};  // two tokens of two channels
  double sums[3] = {};
  reference::add_gram({2, true}, x.data(), x.data(), 2, sums);
  EXPECT_EQ(sums[0], 10);
  EXPECT_EQ(sums[1], -10);
  EXPECT_EQ(sums[2], 20);
  const std::vector<int16_t> ones = {0, 0};
  EXPECT_EQ(cpu_gram({2, true}, x, ones, x, ones, 2, 2), (std::vector<int64_t>{10, -10, 20}));
  const std::vector<float> y = {1, 0, 0, 1};
  EXPECT_EQ(cpu_gram({2, false}, y, ones, x, ones, 2, 2), (std::vector<int64_t>{1, 2, -3, 4}));
}

TEST(Gram, CpuGivesTheExactIntegersInAnyCut) {
  on_every_target([] {
    for (const int64_t width : {1, 7, 32, 33, 130}) {
      for (const bool triangular : {true, false}) {
        const GramPlace place{width, triangular};
        const int64_t tokens = 45;
        const auto y = normal_values(tokens * width, 1, 3.0F);
        const auto x = normal_values(tokens * width, 2, 0.1F);
        const auto& left = triangular ? x : y;
        const auto left_exponents = exponents_of(left, tokens, width);
        const auto exponents = exponents_of(x, tokens, width);
        const auto want = exact_gram(place, left, left_exponents, x, exponents);
        EXPECT_EQ(cpu_gram(place, left, left_exponents, x, exponents, 512, width), want);
        EXPECT_EQ(cpu_gram(place, left, left_exponents, x, exponents, 11, 5), want);
      }
    }
  });
}

// The largest codes, with low bytes of -128 and all of one sign, in a block as long as there is.
TEST(Gram, AFullBlockOfTheLargestCodesDoesNotOverflow) {
  on_every_target([] {
    const int64_t width = 33;
    const GramPlace place{width, true};
    for (const float value :
         {32639.0F, -32639.0F, -32640.0F + 256.0F, 32512.0F + 128.0F - 256.0F}) {
      std::vector<float> x(static_cast<size_t>(cpu::GramCodes::kMostTokens * width), value);
      for (size_t i = 0; i < x.size(); i += static_cast<size_t>(width)) x[i] = -32639.0F;
      const std::vector<int16_t> exponents(static_cast<size_t>(width));
      EXPECT_EQ(cpu_gram(place, x, exponents, x, exponents, cpu::GramCodes::kMostTokens, width),
                exact_gram(place, x, exponents, x, exponents));
    }
  });
}

TEST(Gram, ExactIsWithinItsBoundOfTheReference) {
  const int64_t width = 24;
  const int64_t tokens = 700;
  const GramPlace place{width, true};
  const auto x = normal_values(tokens * width, 5, 2.0F);
  const auto exponents = exponents_of(x, tokens, width);
  const auto exact = exact_gram(place, x, exponents, x, exponents);
  std::vector<double> reference(exact.size());
  reference::add_gram(place, x.data(), x.data(), tokens, reference.data());
  size_t at = 0;
  for (size_t r = 0; r < static_cast<size_t>(width); ++r) {
    for (size_t c = r; c < static_cast<size_t>(width); ++c, ++at) {
      const double unit = power_of_two(exponents[r] + exponents[c]);
      EXPECT_LE(std::abs(static_cast<double>(exact[at]) * unit - reference[at]),
                tokens * 32640 * unit);
    }
  }
}

}  // namespace
}  // namespace k3
