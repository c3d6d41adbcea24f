#include "kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "tests/kernels/bit_equality.h"
#include "tests/kernels/exact_bits.h"

namespace k3 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Routing {
  std::vector<int32_t> slots;
  std::vector<float> weights;
};

// One token through reference and cpu, which must agree on the slots; the cpu's result. Source ids
// are 0, 1, 2, ... unless given.
Routing route_token(const RouterRule& rule, const std::vector<float>& logits,
                    const std::vector<float>& bias, std::vector<int32_t> source_ids = {}) {
  const auto k = static_cast<size_t>(rule.experts_per_token);
  const auto experts = static_cast<int64_t>(logits.size());
  if (source_ids.empty()) {
    source_ids.resize(logits.size());
    std::iota(source_ids.begin(), source_ids.end(), 0);
  }
  Routing got{std::vector<int32_t>(k, 99), std::vector<float>(k, 99.0f)};
  Routing reference = got;
  cpu::route(rule, logits.data(), bias.data(), source_ids.data(), 1, experts, got.slots.data(),
             got.weights.data(), nullptr);
  reference::route(rule, logits.data(), bias.data(), source_ids.data(), 1, experts,
                   reference.slots.data(), reference.weights.data(), nullptr);
  EXPECT_EQ(got.slots, reference.slots);
  return got;
}

TEST(Router, ChoosesTheLargestScoresInDescendingOrder) {
  const Routing got = route_token({2, true, 1.0}, {0, 3, -1, 1}, {0, 0, 0, 0});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{1, 3}));
  const double first = 1 / (1 + std::exp(-3.0));
  const double second = 1 / (1 + std::exp(-1.0));
  EXPECT_FLOAT_EQ(got.weights[0], static_cast<float>(first / (first + second)));
  EXPECT_FLOAT_EQ(got.weights[1], static_cast<float>(second / (first + second)));
}

TEST(Router, TheBiasDecidesTheChoiceButNotTheWeight) {
  const Routing got = route_token({2, true, 1.0}, {0, 3, -1, 1}, {0, 0, 10, 0});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{2, 1}));
  const double first = 1 / (1 + std::exp(1.0));
  const double second = 1 / (1 + std::exp(-3.0));
  EXPECT_FLOAT_EQ(got.weights[0], static_cast<float>(first / (first + second)));
}

TEST(Router, BiasStepsOfAThousandthNearSevenCount) {
  const Routing got = route_token({3, true, 1.0}, {0, 0, 0, 0}, {7.001f, 7.003f, 7.0f, 7.002f});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{1, 3, 0}));
}

TEST(Router, TiesGoToTheLowerSourceId) {
  const Routing got = route_token({2, true, 1.0}, {1, 1, 1, 0}, {0, 0, 0, 0}, {30, 10, 20, 0});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{1, 2}));
}

TEST(Router, TheScaleMultipliesTheWeights) {
  const Routing got = route_token({2, true, 2.446}, {1, 1}, {0, 0});
  EXPECT_FLOAT_EQ(got.weights[0], 1.223f);
}

TEST(Router, WithoutRenormalisationTheWeightsAreTheScores) {
  const Routing got = route_token({2, false, 2.0}, {1, -1}, {0, 0});
  EXPECT_EQ(got.weights[0], 2 * exact_sigmoid(1.0f));
  EXPECT_EQ(got.weights[1], 2 * exact_sigmoid(-1.0f));
}

TEST(Router, OneExpertPerTokenGetsTheWholeWeight) {
  const Routing got = route_token({1, true, 1.0}, {-3, -2, -4}, {0, 0, 0});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{1}));
  EXPECT_EQ(got.weights[0], 1.0f);
}

TEST(Router, AMaskedExpertIsNeverChosenEvenWhenTooFewRemain) {
  const Routing got = route_token({3, true, 1.0}, {5, 1, 5}, {-kInfinity, 0, -kInfinity});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{1, -1, -1}));
  EXPECT_EQ(got.weights, (std::vector<float>{1, 0, 0}));
}

TEST(Router, MoreSlotsThanExpertsLeavesSlotsEmpty) {
  const Routing got = route_token({3, true, 1.0}, {0, 0}, {0, 0});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{0, 1, -1}));
  EXPECT_EQ(got.weights, (std::vector<float>{0.5f, 0.5f, 0}));
}

TEST(Router, AllMaskedLeavesEverySlotEmpty) {
  const Routing got = route_token({2, true, 1.0}, {1, 2}, {-kInfinity, -kInfinity});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{-1, -1}));
  EXPECT_EQ(got.weights, (std::vector<float>{0, 0}));
}

TEST(Router, ScoresThatUnderflowGiveZeroWeightsNotNan) {
  const Routing got = route_token({2, true, 1.0}, {-1000, -1000, -kInfinity}, {0, 0, 0});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(got.weights, (std::vector<float>{0, 0}));
}

TEST(Router, ANanIsChosenAndMakesTheWeightsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routing got = route_token({2, true, 1.0}, {1, nan, 2, nan}, {0, 0, 0, -kInfinity});
  EXPECT_EQ(got.slots, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(std::isnan(got.weights[0]));
  EXPECT_TRUE(std::isnan(got.weights[1]));
}

TEST(Router, AReorderedBankMakesTheSameChoice) {
  // Logits with many ties, and the bank back to front.
  const int64_t experts = 897;
  std::vector<float> logits = normal_values(experts, 1);
  for (float& logit : logits) logit = std::round(4 * logit) / 4;
  std::vector<float> bias = normal_values(experts, 2, 0.1f);
  for (float& value : bias) value = std::round(16 * value) / 16;
  std::vector<int32_t> source_ids(logits.size());
  std::iota(source_ids.begin(), source_ids.end(), 0);
  const Routing forward = route_token({16, true, 1.0}, logits, bias, source_ids);
  std::reverse(logits.begin(), logits.end());
  std::reverse(bias.begin(), bias.end());
  std::reverse(source_ids.begin(), source_ids.end());
  const Routing backward = route_token({16, true, 1.0}, logits, bias, source_ids);
  for (size_t i = 0; i < 16; ++i)
    EXPECT_EQ(source_ids[static_cast<size_t>(backward.slots[i])], forward.slots[i]);
  expect_same_bits(backward.weights, forward.weights);
}

// What pruning relies on. Logits are few different values, so that ties are everywhere, also at the
// edge of the choice.
TEST(Router, LeavingExpertsOutIsMaskingThemInAnyOrderOfTheRest) {
  std::mt19937 random(3);
  constexpr size_t kExperts = 40;
  for (const int64_t k : {1, 4, 8}) {
    const RouterRule rule{k, true, 2.5};
    for (const int64_t kept : {k, k + 1, int64_t{20}, int64_t{40}}) {
      std::vector<float> logits;
      std::vector<float> bias;
      std::vector<int32_t> order(kExperts);
      for (size_t e = 0; e < kExperts; ++e) {
        logits.push_back(static_cast<float>(random() % 4) - 2);
        bias.push_back(static_cast<float>(random() % 2) / 8);
      }
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      order.resize(static_cast<size_t>(kept));

      std::vector<float> masked(kExperts, -kInfinity);
      std::vector<float> kept_logits;
      std::vector<float> kept_bias;
      for (const int32_t id : order) {
        masked[static_cast<size_t>(id)] = bias[static_cast<size_t>(id)];
        kept_logits.push_back(logits[static_cast<size_t>(id)]);
        kept_bias.push_back(bias[static_cast<size_t>(id)]);
      }
      const Routing want = route_token(rule, logits, masked);
      Routing got = route_token(rule, kept_logits, kept_bias, order);
      for (int32_t& slot : got.slots) slot = order[static_cast<size_t>(slot)];
      EXPECT_EQ(got.slots, want.slots);
      EXPECT_TRUE(same_bits(got.weights, want.weights));
    }
  }
}

TEST(Router, CpuGivesTheExactBits) {
  on_every_target([] {
    for (int64_t experts : {17, 896, 897}) {
      const int64_t tokens = 31;
      const RouterRule rule{16, true, 1.0};
      const auto logits = normal_values(tokens * experts, 3, 2.0f);
      const auto bias = normal_values(experts, 4, 0.1f);
      std::vector<int32_t> source_ids(static_cast<size_t>(experts));
      std::iota(source_ids.rbegin(), source_ids.rend(), 5);
      std::vector<float> scores(logits.size());
      std::vector<float> want_scores(logits.size());
      std::vector<int32_t> slots(static_cast<size_t>(tokens * 16));
      std::vector<int32_t> want_slots(slots.size());
      std::vector<float> weights(slots.size());
      std::vector<float> want_weights(slots.size());
      cpu::route(rule, logits.data(), bias.data(), source_ids.data(), tokens, experts, slots.data(),
                 weights.data(), scores.data());
      for (size_t i = 0; i < logits.size(); ++i) want_scores[i] = exact_sigmoid(logits[i]);
      for (int64_t t = 0; t < tokens; ++t) {
        exact_route(rule, want_scores.data() + t * experts, bias.data(), source_ids.data(), experts,
                    want_slots.data() + t * 16, want_weights.data() + t * 16);
      }
      expect_same_bits(scores, want_scores);
      expect_same_bits(weights, want_weights);
      EXPECT_EQ(slots, want_slots);

      reference::route(rule, logits.data(), bias.data(), source_ids.data(), tokens, experts,
                       slots.data(), weights.data(), scores.data());
      EXPECT_EQ(slots, want_slots);
      expect_close(want_scores, scores, 0x1p-23, 0);
      expect_close(want_weights, weights, 0x1p-21, 0);
    }
  });
}

}  // namespace
}  // namespace k3
