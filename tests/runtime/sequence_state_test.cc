#include "runtime/sequence_state.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime/loaded_model.h"
#include "schema/error.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

constexpr const char* kPack = K3_BINARY_DIR "/nano.k3pack";
const std::vector<int32_t> kIds = {2032, 84, 263, 402, 291, 1005, 77, 310, 512};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
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
  SequenceState state(model.pack().config());
  model.forward().run(ids, state);
  return state;
}

class ForwardState : public testing::TestWithParam<const char*> {
 protected:
  LoadedModel model_{{.pack_path = kPack, .backend = GetParam()}};
};

TEST_P(ForwardState, EverySplitOfAPromptGivesTheSameBits) {
  const SequenceState whole = state_after(model_, kIds);
  for (size_t split = 1; split < kIds.size(); ++split) {
    SequenceState state = state_after(model_, std::span(kIds).first(split));
    model_.forward().run(std::span(kIds).subspan(split), state);
    expect_same_state(state, whole);
  }
  SequenceState one_by_one(model_.pack().config());
  for (const int32_t& id : kIds) model_.forward().run({&id, 1}, one_by_one);
  expect_same_state(one_by_one, whole);
}

TEST_P(ForwardState, OneThreadAndTwoGiveTheSameBits) {
  const SequenceState two = state_after(model_, kIds);
  const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
  expect_same_state(state_after(model_, kIds), two);
}

TEST_P(ForwardState, ASavedAndLoadedStateContinuesWithTheSameBits) {
  const TempFolder folder;
  const std::string path = folder.path("sequence.k3state");
  const uint64_t payload = model_.pack().payload_xxh3();
  save_state(state_after(model_, std::span(kIds).first(5)), model_.pack().config(), payload, path);
  SequenceState state = load_state(model_.pack().config(), payload, path);
  model_.forward().run(std::span(kIds).subspan(5), state);
  expect_same_state(state, state_after(model_, kIds));
}

INSTANTIATE_TEST_SUITE_P(Backends, ForwardState, testing::Values("reference", "cpu"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(ExpertBudget, ResultsDoNotDependOnHowManyExpertsFit) {
  LoadedModel all({.pack_path = kPack});
  LoadedModel few({.pack_path = kPack, .expert_cache_gb = 6 * 13056e-9});
  EXPECT_TRUE(all.experts().all_resident());
  EXPECT_EQ(few.experts().capacity_experts(), 6);
  expect_same_state(state_after(few, kIds), state_after(all, kIds));
  EXPECT_GT(few.experts().statistics().misses, 0);
}

TEST(ExpertBudget, LessThanOneTokenOfALayerIsRefused) {
  EXPECT_THROW(LoadedModel({.pack_path = kPack, .expert_cache_gb = 3 * 13056e-9}), Error);
}

class StateFile : public testing::Test {
 protected:
  void SetUp() override {
    save_state(state_after(model_, kIds), model_.pack().config(), payload_, path_);
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  void write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string fault() const {
    try {
      load_state(model_.pack().config(), payload_, path_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  LoadedModel model_{{.pack_path = kPack}};
  uint64_t payload_ = model_.pack().payload_xxh3();
  TempFolder folder_;
  std::string path_ = folder_.path("sequence.k3state");
  std::string bytes_;
};

TEST_F(StateFile, AnotherPackIsRefused) {
  EXPECT_THROW(load_state(model_.pack().config(), payload_ + 1, path_), Error);
}

TEST_F(StateFile, EveryKindOfDamageIsNoticed) {
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

}  // namespace
}  // namespace k3
