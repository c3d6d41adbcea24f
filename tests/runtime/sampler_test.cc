#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "schema/error.h"

namespace k3 {
namespace {

TEST(Sampler, TemperatureZeroTakesTheLargestLogitAndTheLowestIdAmongEquals) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}, 0), 1);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  Sampler sampler({.temperature = 2});
  const std::vector<float> logits = {0, 2, 4};  // weights 1, e, e^2 at temperature 2
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20000;
  for (int64_t position = 0; position < kDraws; ++position) {
    counts[sampler.sample(logits, position)] += 1;
  }
  // Standard deviation of a share is below 0.0036; five of them.
  EXPECT_NEAR(counts[0] / double{kDraws}, 0.0900, 0.018);
  EXPECT_NEAR(counts[1] / double{kDraws}, 0.2447, 0.018);
  EXPECT_NEAR(counts[2] / double{kDraws}, 0.6652, 0.018);
}

TEST(Sampler, TopPKeepsTheFewestTokensThatReachTheSum) {
  Sampler sampler({.temperature = 1, .top_p = 0.6});
  const std::vector<float> logits = {0, 1,
                                     2};  // shares 0.09, 0.24, 0.67: the last alone reaches 0.6
  for (int64_t position = 0; position < 1000; ++position) {
    EXPECT_EQ(sampler.sample(logits, position), 2);
  }
}

TEST(Sampler, ADrawDependsOnSeedAndPositionAlone) {
  const std::vector<float> logits(1000, 0.0f);
  Sampler first({.temperature = 1, .seed = 7});
  Sampler second({.temperature = 1, .seed = 7});
  Sampler other({.temperature = 1, .seed = 8});
  std::vector<int32_t> forwards;
  for (int64_t position = 0; position < 50; ++position) {
    forwards.push_back(first.sample(logits, position));
  }
  int same_under_other_seed = 0;
  for (int64_t position = 49; position >= 0; --position) {
    EXPECT_EQ(second.sample(logits, position), forwards[static_cast<size_t>(position)]);
    same_under_other_seed +=
        other.sample(logits, position) == forwards[static_cast<size_t>(position)];
  }
  EXPECT_LT(same_under_other_seed, 5);
}

TEST(Sampler, RefusesOptionsWithoutMeaning) {
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.temperature = 1, .top_p = 0}), Error);
  EXPECT_THROW(Sampler({.temperature = 1, .top_p = 1.5}), Error);
}

}  // namespace
}  // namespace k3
