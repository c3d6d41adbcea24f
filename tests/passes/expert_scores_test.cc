#include "passes/expert_scores.h"

#include <gtest/gtest.h>

#include "schema/trace_writer.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

TraceHeader header() {
  return {.router_xxh3 = 5,
          .experts = 4,
          .experts_per_token = 2,
          .has_weights = true,
          .has_norms = true,
          .layers = {3}};
}

// One layer, two tokens: the first chooses experts 0 and 1, the second 0 and 2; 3 is never chosen.
TraceBlock block() {
  return {.layers = 1,
          .documents = {{1, "a"}},
          .tokens = {{0, 0, TracePhase::kPrefill}, {0, 1, TracePhase::kPrefill}},
          .ids = {0, 1, 0, 2},
          .scores = {0.9F, 0.1F, 0.5F, 0.5F},
          .weights = {0.75F, 0.25F, 0.5F, 0.5F},
          .norms = {2, 40, 4, 1}};
}

std::string write(const TempFolder& folder, const std::string& name, const TraceHeader& head) {
  TraceWriter writer(folder.path(name), head);
  writer.write(block());
  writer.finish(2);
  return folder.path(name);
}

TEST(ExpertScores, EachRuleIsWhatItSays) {
  const TempFolder folder;
  const std::vector<std::string> paths = {write(folder, "t", header())};
  const LayerRouting routing = sum_routing(paths).layers.front();
  EXPECT_EQ(expert_scores(routing, ExpertScore::kReap, 3),
            (std::vector<double>{(1.5 + 2) / 2, 10, 0.5, 0}));
  EXPECT_EQ(expert_scores(routing, ExpertScore::kFrequency, 3), (std::vector<double>{2, 1, 1, 0}));
  EXPECT_EQ(expert_scores(routing, ExpertScore::kGate, 3),
            (std::vector<double>{1.25, 0.25, 0.5, 0}));
  EXPECT_EQ(expert_scores(routing, ExpertScore::kTotal, 3),
            (std::vector<double>{1.5 + 2, 10, 0.5, 0}));
}

TEST(ExpertScores, TwoTracesAddUpAndAreBothNamed) {
  const TempFolder folder;
  const std::vector<std::string> one = {write(folder, "t", header())};
  const std::vector<std::string> two = {one.front(), one.front()};
  const RoutingSums sums = sum_routing(two);
  EXPECT_EQ(sums.layers.front().tokens, 4);
  EXPECT_EQ(sums.layers.front().chosen, (std::vector<int64_t>{4, 2, 2, 0}));
  EXPECT_EQ(sums.traces.size(), 2u);
  EXPECT_EQ(sums.traces[0], sums.traces[1]);
}

TEST(ExpertScores, TracesOfTwoModelsDoNotMix) {
  const TempFolder folder;
  TraceHeader other = header();
  other.router_xxh3 = 6;
  const std::vector<std::string> paths = {write(folder, "a", header()), write(folder, "b", other)};
  EXPECT_EQ(thrown_message([&] { sum_routing(paths); }),
            paths[1] +
                ": is of the model with router hash 0000000000000006 and 4 experts, the "
                "traces before it of 0000000000000005 and 4");
}

TEST(ExpertScores, RandomIsAnOrderOfItsOwnPerLayerAndTheSameAgain) {
  LayerRouting routing;
  routing.chosen.resize(64);
  const auto scores = [&](int64_t layer) {
    return expert_scores(routing, ExpertScore::kRandom, layer);
  };
  EXPECT_EQ(scores(1), scores(1));
  EXPECT_NE(rank_experts(scores(1)), rank_experts(scores(2)));
}

TEST(ExpertScores, TiesGoToTheLowerSourceId) {
  const std::vector<double> scores = {1, 3, 1, 3, 0};
  EXPECT_EQ(rank_experts(scores), (std::vector<int32_t>{1, 3, 0, 2, 4}));
}

TEST(ExpertScores, NamesAreReadBack) {
  for (const char* name : {"reap", "total", "frequency", "gate", "random"}) {
    EXPECT_EQ(expert_score_name(*parse_expert_score(name)), name);
  }
  EXPECT_FALSE(parse_expert_score("luck").has_value());
}

}  // namespace
}  // namespace k3
