#include "passes/ternary_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "schema/formats/int8.h"
#include "schema/formats/ternary.h"

namespace k3 {
namespace {

// The sum of (w - s c)^2 with the best code for every weight, by trying all of them.
double error_at(const std::vector<float>& weights, double scale, int largest_code) {
  double error = 0;
  for (const float weight : weights) {
    double least = INFINITY;
    for (int code = -largest_code; code <= largest_code; ++code) {
      const double off = static_cast<double>(weight) - scale * code;
      least = std::fmin(least, off * off);
    }
    error += least;
  }
  return error;
}

// The least error of any codes with the best scale for them: all (2 largest_code + 1)^n of them.
double least_error_of_all(const std::vector<float>& weights, int largest_code) {
  double energy = 0;
  for (const float weight : weights) energy += std::pow(static_cast<double>(weight), 2);
  const int levels = 2 * largest_code + 1;
  double best_gain = 0;
  const auto count = static_cast<int64_t>(std::pow(levels, weights.size()));
  for (int64_t number = 0; number < count; ++number) {
    double products = 0;
    double squares = 0;
    int64_t rest = number;
    for (const float weight : weights) {
      const auto code = static_cast<double>(rest % levels - largest_code);
      rest /= levels;
      products += static_cast<double>(weight) * code;
      squares += code * code;
    }
    if (products > 0) best_gain = std::fmax(best_gain, products * products / squares);
  }
  return energy - best_gain;
}

TEST(ExactScale, NoCodesWithAnyScaleAreBetterInSmallBlocks) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> few(-3, 3);  // many ties
  for (int i = 0; i < 400; ++i) {
    for (const auto& [largest_code, most] : {std::pair(1, size_t{7}), std::pair(4, size_t{4})}) {
      std::vector<float> weights(1 + random() % most);
      for (float& weight : weights) {
        weight = i % 2 == 0 ? normal(random) : static_cast<float>(few(random));
      }
      const double error = error_at(weights, exact_scale(weights, largest_code), largest_code);
      EXPECT_NEAR(error, least_error_of_all(weights, largest_code), 1e-9);
    }
  }
}

TEST(ExactScale, NoScaleOfAFineGridIsBetterInWholeBlocks) {
  std::mt19937 random(2);
  std::student_t_distribution<float> heavy(3);
  for (int i = 0; i < 20; ++i) {
    std::vector<float> weights(160);
    float largest = 0;
    for (float& weight : weights) {
      weight = heavy(random);
      largest = std::fmax(largest, std::fabs(weight));
    }
    for (const int largest_code : {1, 4}) {
      const double found = error_at(weights, exact_scale(weights, largest_code), largest_code);
      for (int step = 1; step <= 2000; ++step) {
        const double scale = static_cast<double>(largest) * step / 2000;
        EXPECT_LE(found, error_at(weights, scale, largest_code) * (1 + 1e-12)) << step;
      }
    }
  }
}

TEST(ExactScale, IsTheMeanOfTheLargestForTernary) {
  const std::vector<float> weights = {-3, 0.1F, 2.5F, -0.2F, 3.5F};
  EXPECT_DOUBLE_EQ(exact_scale(weights, 1), 3.0);
  EXPECT_EQ(exact_scale(std::vector<float>{0, 0}, 1), 0.0);
  EXPECT_EQ(exact_scale(std::vector<float>{}, 4), 0.0);
  // 1, 2, 3, 4 are codes as they stand.
  EXPECT_DOUBLE_EQ(exact_scale(std::vector<float>{8, -2, 4, 6, 0}, 4), 2.0);
}

struct Row {
  std::vector<int8_t> codes;
  std::vector<uint8_t> multipliers;
  RoundedRow rounded;
};

Row round_row(const std::vector<float>& weights, int largest_code) {
  Row row;
  const size_t blocks = (weights.size() + kBlockInputs - 1) / kBlockInputs;
  row.codes.assign(blocks * kBlockInputs, 99);
  row.multipliers.assign(blocks, 99);
  row.rounded = round_ternary_row(weights, largest_code, row.codes, row.multipliers);
  return row;
}

double stored_error(const std::vector<float>& weights, const Row& row) {
  double error = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double stored =
        decode_ternary(row.codes[i], row.multipliers[i / kBlockInputs], row.rounded.row_scale);
    error += std::pow(static_cast<double>(weights[i]) - stored, 2);
  }
  return error;
}

// BitNet's rule, with a scale in full precision: s = mean |w| of the block, code where |w| > s / 2.
double absmean_error(const std::vector<float>& weights) {
  double error = 0;
  for (size_t begin = 0; begin < weights.size(); begin += kBlockInputs) {
    const size_t end = std::min(begin + kBlockInputs, weights.size());
    double scale = 0;
    for (size_t i = begin; i < end; ++i) scale += std::fabs(static_cast<double>(weights[i]));
    scale /= static_cast<double>(end - begin);
    for (size_t i = begin; i < end; ++i) {
      const double magnitude = std::fabs(static_cast<double>(weights[i]));
      error += std::pow(magnitude - (magnitude > scale / 2 ? scale : 0.0), 2);
    }
  }
  return error;
}

TEST(TernaryRound, ReportsTheErrorOfWhatIsStored) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.02F);
  for (const size_t cols : {1, 31, 159, 160, 161, 319, 7168}) {
    std::vector<float> weights(cols);
    double energy = 0;
    for (float& weight : weights) {
      weight = normal(random);
      energy += std::pow(static_cast<double>(weight), 2);
    }
    for (const int largest_code : {1, 4}) {
      const Row row = round_row(weights, largest_code);
      EXPECT_NEAR(row.rounded.squared_error, stored_error(weights, row), 1e-12 * energy);
      EXPECT_NEAR(row.rounded.squared_weights, energy, 1e-12 * energy);
      for (const int8_t code : row.codes) EXPECT_LE(std::abs(code), largest_code);
      for (size_t i = cols; i < row.codes.size(); ++i) EXPECT_EQ(row.codes[i], 0);
    }
  }
}

TEST(TernaryRound, EveryCodeIsTheBestUnderTheScaleThatIsStored) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> weights(480);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::ldexp(normal(random), -3 * static_cast<int>(i / 160));
  }
  for (const int largest_code : {1, 4}) {
    const Row row = round_row(weights, largest_code);
    for (size_t block = 0; block < 3; ++block) {
      const std::vector<float> part(weights.begin() + static_cast<int64_t>(block * 160),
                                    weights.begin() + static_cast<int64_t>(block * 160 + 160));
      const double scale = static_cast<double>(row.rounded.row_scale) * row.multipliers[block];
      Row alone = row;
      alone.codes.assign(row.codes.begin() + static_cast<int64_t>(block * 160),
                         row.codes.begin() + static_cast<int64_t>(block * 160 + 160));
      alone.multipliers = {row.multipliers[block]};
      EXPECT_NEAR(stored_error(part, alone), error_at(part, scale, largest_code), 1e-12);
    }
  }
}

TEST(TernaryRound, IsNeverWorseThanAbsmeanRounding) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> heavy(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> weights(20 + random() % 1000);
    for (float& weight : weights) {
      weight = i % 3 == 0 ? normal(random) : i % 3 == 1 ? heavy(random) : uniform(random);
    }
    const double ternary = round_row(weights, 1).rounded.squared_error;
    EXPECT_LE(ternary, absmean_error(weights) * (1 + 1e-9)) << weights.size();
    EXPECT_LE(round_row(weights, 4).rounded.squared_error, ternary);
  }
}

// Lloyd and Max: 43.6 % is what three levels leave of a Gaussian; nine uniform ones leave 17 %.
TEST(TernaryRound, LeavesTheKnownErrorOfGaussianWeights) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> weights(160 * 200);
  for (float& weight : weights) weight = normal(random);
  const auto relative = [&](int largest_code) {
    const RoundedRow row = round_row(weights, largest_code).rounded;
    return std::sqrt(row.squared_error / row.squared_weights);
  };
  EXPECT_NEAR(relative(1), 0.436, 0.003);
  EXPECT_NEAR(relative(4), 0.170, 0.003);
}

TEST(TernaryRound, ARowOfZerosHasScaleZero) {
  const Row row = round_row(std::vector<float>(161, 0.0F), 4);
  EXPECT_EQ(row.rounded.row_scale, 0.0F);
  EXPECT_EQ(row.multipliers, (std::vector<uint8_t>{0, 0}));
  EXPECT_EQ(row.codes, std::vector<int8_t>(320, 0));
}

TEST(TernaryRound, ABlockFarBelowItsRowIsDroppedRatherThanInflated) {
  std::vector<float> weights(320, 1.0F);
  std::fill(weights.begin() + 160, weights.end(), 0.001F);  // below half of 1 / 255
  const Row row = round_row(weights, 1);
  EXPECT_EQ(row.multipliers, (std::vector<uint8_t>{255, 0}));
  EXPECT_EQ(row.codes[0], 1);
  EXPECT_EQ(row.codes[160], 0);
}

TEST(TernaryRound, ExtremesOfFloatSurvive) {
  for (const float size : {std::numeric_limits<float>::max(), 1e-44F}) {
    for (const int largest_code : {1, 4}) {
      const Row row = round_row({size, -size, size / 2}, largest_code);
      EXPECT_TRUE(std::isfinite(row.rounded.row_scale));
      EXPECT_TRUE(std::isfinite(row.rounded.squared_error));
      EXPECT_LE(row.rounded.squared_error, row.rounded.squared_weights);
    }
  }
}

}  // namespace
}  // namespace k3
