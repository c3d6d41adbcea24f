#include "runtime/sequence_state.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>
#include <tuple>

#include "runtime/loaded_model.h"
#include "schema/error.h"
#include "schema/memory_need.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

using test::kPrompt;
using test::pack_path;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

void expect_same_state(const SequenceState& a, const SequenceState& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_TRUE(same_bits(a.last_logits, b.last_logits));
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_TRUE(same_bits(a.layers[i].q_window, b.layers[i].q_window)) << "layer " << i;
    EXPECT_TRUE(same_bits(a.layers[i].k_window, b.layers[i].k_window)) << "layer " << i;
    EXPECT_TRUE(same_bits(a.layers[i].v_window, b.layers[i].v_window)) << "layer " << i;
    EXPECT_TRUE(same_bits(a.layers[i].kda, b.layers[i].kda)) << "layer " << i;
    EXPECT_TRUE(same_bits(a.layers[i].cache, b.layers[i].cache)) << "layer " << i;
  }
}

SequenceState state_after(LoadedModel& model, std::span<const int32_t> ids) {
  SequenceState state(model.config());
  model.forward().run(ids, state);
  return state;
}

// On every backend and every pack.
class ForwardState : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  LoadedModel model_{
      {.pack_path = pack_path(std::get<1>(GetParam())), .backend = std::get<0>(GetParam())}};
};

TEST_P(ForwardState, EverySplitOfAPromptGivesTheSameBits) {
  const SequenceState whole = state_after(model_, kPrompt);
  for (size_t split = 1; split < kPrompt.size(); ++split) {
    SequenceState state = state_after(model_, std::span(kPrompt).first(split));
    model_.forward().run(std::span(kPrompt).subspan(split), state);
    expect_same_state(state, whole);
  }
  SequenceState one_by_one(model_.config());
  for (const int32_t& id : kPrompt) model_.forward().run({&id, 1}, one_by_one);
  expect_same_state(one_by_one, whole);
}

TEST_P(ForwardState, OneThreadAndTwoGiveTheSameBits) {
  const SequenceState two = state_after(model_, kPrompt);
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  expect_same_state(state_after(model_, kPrompt), two);
}

TEST_P(ForwardState, ASavedAndLoadedStateContinuesWithTheSameBits) {
  const TempFolder folder;
  const std::string path = folder.path("sequence.k3state");
  const uint64_t payload = model_.pack().payload_xxh3();
  save_state(state_after(model_, std::span(kPrompt).first(5)), model_.config(), payload, path);
  SequenceState state = load_state(model_.config(), payload, path);
  model_.forward().run(std::span(kPrompt).subspan(5), state);
  expect_same_state(state, state_after(model_, kPrompt));
}

INSTANTIATE_TEST_SUITE_P(All, ForwardState,
                         testing::Combine(testing::Values("reference", "cpu"),
                                          testing::ValuesIn(test::kPacks)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param)) + "_" +
                                  std::get<1>(instance.param);
                         });

class ExpertBudget : public testing::TestWithParam<const char*> {
 protected:
  // The model with room for so many experts, and no byte more.
  LoadOptions with_room_for(int64_t experts) const {
    const PackReader pack(path_);
    const int64_t bytes = expert_slot_bytes(pack.config(), pack.index().content.banks[0]);
    return {.pack_path = path_, .expert_cache_gb = static_cast<double>(experts * bytes) / 1e9};
  }
  std::string path_ = pack_path(GetParam());
};

TEST_P(ExpertBudget, ResultsDoNotDependOnHowManyExpertsFit) {
  LoadedModel all({.pack_path = path_});
  const int64_t room = all.config().experts_per_token + 2;
  LoadedModel few(with_room_for(room));
  EXPECT_TRUE(all.experts().all_resident());
  EXPECT_EQ(few.experts().capacity_experts(), room);
  expect_same_state(state_after(few, kPrompt), state_after(all, kPrompt));
  EXPECT_GT(few.experts().statistics().misses, 0);
}

TEST_P(ExpertBudget, LessThanOneTokenOfALayerIsRefused) {
  const int64_t needed = PackReader(path_).config().experts_per_token;
  EXPECT_THROW(LoadedModel(with_room_for(needed - 1)), Error);
  EXPECT_NO_THROW(LoadedModel(with_room_for(needed)));
}

K3_FOR_EVERY_PACK(ExpertBudget);

class StateFile : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    save_state(state_after(model_, kPrompt), model_.config(), payload_, path_);
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  void write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string fault() const {
    try {
      load_state(model_.config(), payload_, path_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  LoadedModel model_{{.pack_path = pack_path(GetParam())}};
  uint64_t payload_ = model_.pack().payload_xxh3();
  TempFolder folder_;
  std::string path_ = folder_.path("sequence.k3state");
  std::string bytes_;
};

TEST_P(StateFile, AnotherPackIsRefused) {
  EXPECT_THROW(load_state(model_.config(), payload_ + 1, path_), Error);
}

TEST_P(StateFile, EveryKindOfDamageIsNoticed) {
  EXPECT_EQ(fault(), "");
  for (size_t at = 0; at < bytes_.size(); at += bytes_.size() / 97) {
    std::string damaged = bytes_;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write(damaged);
    EXPECT_NE(fault(), "") << "byte " << at;
    write(bytes_.substr(0, at));
    EXPECT_NE(fault(), "") << "cut at " << at;
  }
}

K3_FOR_EVERY_PACK(StateFile);

}  // namespace
}  // namespace k3
