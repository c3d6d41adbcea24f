// What an expert that is missing changes, and what it does not.

#include "runtime/missing_rule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/pruned_nano.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

using test::kPrompt;
using test::prompt_logits;

// The routing of the first layer with experts, which no missing expert has disturbed.
class FirstRouting final : public ForwardObserver {
 public:
  void on_layer(int64_t, int64_t, const float*) override {}
  void on_routing(int64_t, int64_t tokens, const int32_t* source_ids,
                  const float* route_weights) override {
    if (!ids.empty()) return;
    ids.assign(source_ids, source_ids + tokens * 4);
    weights.assign(route_weights, route_weights + tokens * 4);
  }
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

// nano, of which a plan keeps 20 of 64 experts in each layer, as it is and compiled with the plan.
class Missing : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    plan_ = test::write_nano_plan(*folder_, "plan", [](PlanLayer& layer) {
      for (int32_t id = 0; id < 64; ++id) (is_kept(id) ? layer.kept : layer.dropped).push_back(id);
    });
    dropped_ = test::compile_nano(*folder_, "dropped", {.traces = {}, .plan_path = plan_});
    cold_ =
        test::compile_nano(*folder_, "cold", {.traces = {}, .plan_path = plan_, .keep_cold = true});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static bool is_kept(int32_t id) { return id % 16 < 5; }

  static LoadOptions full(MissingRule missing) {
    return {.pack_path = full_, .prune_plan_path = plan_, .missing = missing};
  }
  static LoadOptions pruned(const std::string& pack, MissingRule missing) {
    return {.pack_path = pack, .missing = missing};
  }

  static inline const std::string full_ = test::pack_path("nano");
  static inline TempFolder* folder_ = nullptr;
  static inline std::string plan_, dropped_, cold_;
};

TEST_F(Missing, FetchedExpertsGiveTheBitsOfThePackThatHasThemAll) {
  const std::vector<float> want = prompt_logits({.pack_path = full_});
  EXPECT_EQ(prompt_logits(full(MissingRule::kFetch)), want);
  LoadOptions load = pruned(cold_, MissingRule::kFetch);
  EXPECT_EQ(prompt_logits(load), want);
  for (const int64_t prefetch : {0, 6}) {
    load.expert_cache_gb = 0.0012;
    load.chunk_tokens = 3;
    load.prefetch_experts = prefetch;
    LoadedModel model(load);
    SequenceState state(model.config());
    for (const int32_t id : kPrompt) model.forward().run({&id, 1}, state);
    const auto vocab = model.config().vocab_size;
    EXPECT_TRUE(std::equal(state.last_logits.begin(), state.last_logits.end(), want.end() - vocab));
    EXPECT_GT(model.experts().statistics().misses, 0);
  }
}

TEST_F(Missing, NothingIsFetchedFromAPackThatLeftItOut) {
  EXPECT_EQ(thrown_message([] { LoadedModel{pruned(dropped_, MissingRule::kFetch)}; }),
            dropped_ +
                ": layer 1 has 20 of 64 experts, --missing fetch needs all: compile with "
                "--cold keep");
}

TEST_F(Missing, WhatIsDroppedDoesNotDependOnWhetherThePackHasIt) {
  const std::vector<float> want = prompt_logits(full(MissingRule::kDrop));
  EXPECT_EQ(prompt_logits(pruned(dropped_, MissingRule::kDrop)), want);
  LoadOptions load = pruned(cold_, MissingRule::kDrop);
  EXPECT_EQ(prompt_logits(load), want);
  load.expert_cache_gb = 0.0003;
  load.chunk_tokens = 9;
  load.prefetch_experts = 8;
  EXPECT_EQ(prompt_logits(load), want);
  EXPECT_NE(want, prompt_logits(full(MissingRule::kNextBest)));
  EXPECT_NE(want, prompt_logits({.pack_path = full_}));
}

TEST_F(Missing, TheOthersKeepTheWeightsTheyHaveBesideADroppedOne) {
  FirstRouting all;
  FirstRouting drop;
  prompt_logits({.pack_path = full_}, &all);
  prompt_logits(pruned(dropped_, MissingRule::kDrop), &drop);
  ASSERT_EQ(all.ids.size(), drop.ids.size());
  int64_t missing = 0;
  for (size_t i = 0; i < all.ids.size(); ++i) {
    const bool kept = is_kept(all.ids[i]);
    EXPECT_EQ(drop.ids[i], kept ? all.ids[i] : -1);
    EXPECT_EQ(drop.weights[i], kept ? all.weights[i] : 0);
    missing += kept ? 0 : 1;
  }
  EXPECT_GT(missing, 0);
  EXPECT_LT(missing, std::ssize(all.ids));
}

TEST_F(Missing, TheNextBestIsChosenInsteadWithWeightsThatAddUp) {
  FirstRouting next;
  prompt_logits(pruned(cold_, MissingRule::kNextBest), &next);
  for (size_t row = 0; row < next.ids.size(); row += 4) {
    float sum = 0;
    for (size_t i = row; i < row + 4; ++i) {
      EXPECT_TRUE(is_kept(next.ids[i]));
      sum += next.weights[i];
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
}

TEST_F(Missing, WhereNothingIsMissingAllRulesAreOne) {
  const std::vector<float> want = prompt_logits({.pack_path = full_});
  for (const MissingRule missing : {MissingRule::kFetch, MissingRule::kDrop}) {
    EXPECT_EQ(prompt_logits(pruned(full_, missing)), want);
  }
}

}  // namespace
}  // namespace k3
