// What must hold of the cache whatever is in it: the same bits, honest counts, and one clear line
// for an expert that cannot be had.

#include "runtime/expert_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "compiler/cache_replay.h"
#include "compiler/trace_routing.h"
#include "runtime/layer_experts.h"
#include "runtime/loaded_model.h"
#include "runtime/trace_recorder.h"
#include "schema/error.h"
#include "schema/memory_need.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

using test::kPrompt;

// The logits of every token of the prompt.
std::vector<float> logits_of(LoadedModel& model) {
  SequenceState state(model.config());
  std::vector<float> logits(kPrompt.size() * static_cast<size_t>(model.config().vocab_size));
  const auto chunk = static_cast<size_t>(model.forward().max_tokens());
  for (size_t begin = 0; begin < kPrompt.size(); begin += chunk) {
    const auto ids = std::span(kPrompt).subspan(begin, std::min(chunk, kPrompt.size() - begin));
    model.forward().run(ids, state,
                        logits.data() + begin * static_cast<size_t>(model.config().vocab_size));
  }
  return logits;
}

class CacheOf : public testing::TestWithParam<const char*> {
 protected:
  LoadOptions options(int64_t experts) const {
    const PackReader pack(path_);
    const int64_t bytes = expert_slot_bytes(pack.config(), pack.index().content.banks[0]);
    LoadOptions load{.pack_path = path_};
    load.expert_cache_gb = (static_cast<double>(experts * bytes) + 0.5) / 1e9;
    return load;
  }
  // Room for `tokens` tokens' experts of all layers, but not for all that there are.
  int64_t room_for(double tokens) const {
    const PackReader pack(path_);
    int64_t all = 0;
    for (const PackBank& bank : pack.index().content.banks) all += std::ssize(bank.experts);
    const int64_t a_token =
        pack.config().experts_per_token * std::ssize(pack.index().content.banks);
    return std::min(static_cast<int64_t>(tokens * static_cast<double>(a_token)), all - 1);
  }
  std::string path_ = test::pack_path(GetParam());
};

TEST_P(CacheOf, OutputBitsDependOnNothingThatTheCacheDoes) {
  LoadedModel all({.pack_path = path_});
  ASSERT_TRUE(all.experts().all_resident());
  const std::vector<float> want = logits_of(all);
  const int64_t least =
      std::ssize(all.pack().index().content.banks) * all.config().experts_per_token;
  for (const EvictionPolicy policy :
       {EvictionPolicy::kLru, EvictionPolicy::kLruPerLayer, EvictionPolicy::kLfuDecayed}) {
    for (const int64_t room : {least, 2 * least + 3}) {
      for (const int64_t chunk : {1, 4, 64}) {
        LoadOptions load = options(room);
        load.expert_cache_policy = policy;
        load.expert_reads = chunk == 4 ? ReadPath::kBuffered : ReadPath::kDirect;
        load.prefetch_experts = room == least ? 3 : 6;
        load.chunk_tokens = chunk;
        LoadedModel model(load);
        ASSERT_FALSE(model.experts().all_resident());
        const std::vector<float> got = logits_of(model);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
            << kEvictionPolicyNames[static_cast<size_t>(policy)] << ", room for " << room
            << ", chunks of " << chunk;
      }
    }
  }
}

// What k3c says of a cache before there is one is what the cache then does.
TEST_P(CacheOf, TheReplayOfItsTraceHasItsHits) {
  const TempFolder folder;
  const std::pair<EvictionPolicy, CachePolicy> policies[] = {
      {EvictionPolicy::kLru, CachePolicy::kLru},
      {EvictionPolicy::kLruPerLayer, CachePolicy::kLayerLru}};
  for (const auto& [policy, replayed] : policies) {
    for (const double tokens : {1.0, 2.5, 4.25}) {
      LoadOptions load = options(room_for(tokens));
      load.expert_cache_policy = policy;
      load.prefetch_experts = 0;
      load.chunk_tokens = 1;
      LoadedModel model(load);
      const std::string path = folder.path("trace");
      TraceRecorder trace(path, model.pack(), model.config(), false);
      trace.add_document({1, "here"});
      SequenceState state(model.config());
      generate(
          model.forward(), state, model.tokenizer(), kPrompt, {.max_new_tokens = 30}, [](auto) {},
          &trace);
      trace.finish();
      const ExpertCacheStatistics& counts = model.experts().statistics();
      const ReplayRequests requests = list_requests(load_routing({&path, 1}), 1000);
      EXPECT_EQ(counts.hits, replay_hits(requests, replayed, model.experts().capacity_experts()));
      EXPECT_EQ(counts.hits + counts.misses, std::ssize(requests.experts_asked));
      EXPECT_GT(counts.hits, 0);
      EXPECT_EQ(counts.prefetch_hits, 0);
      EXPECT_EQ(counts.bytes_read, counts.missed_bytes);
      EXPECT_EQ(
          counts.missed_bytes,
          counts.misses * model.pack().index().content.banks[0].experts[0].extent.length_bytes);
    }
  }
}

TEST_P(CacheOf, WhatWasGuessedIsNeitherAHitNorAMiss) {
  LoadOptions load = options(room_for(1.5));
  LoadedModel model(load);
  ExpertCache& cache = model.experts();
  const PackBank& bank = model.pack().index().content.banks[0];
  const int64_t bytes = bank.experts[0].extent.length_bytes;
  cache.prefetch(bank, std::vector<int32_t>{7, 3, 9});
  const std::vector<int32_t> asked = {3, -1, 5, 3};
  const auto got = cache.fetch(bank, asked);
  EXPECT_EQ(got[0], got[3]);
  EXPECT_EQ(got[1], nullptr);
  EXPECT_NE(got[2], nullptr);
  EXPECT_EQ(cache.statistics().hits, 0);
  EXPECT_EQ(cache.statistics().prefetch_hits, 1);
  EXPECT_EQ(cache.statistics().misses, 1);
  EXPECT_EQ(cache.statistics().missed_bytes, bytes);
  EXPECT_GE(cache.statistics().prefetched_bytes, bytes);
  cache.fetch(bank, asked);
  EXPECT_EQ(cache.statistics().hits, 2);
  EXPECT_EQ(cache.statistics().prefetch_hits, 1);
  EXPECT_EQ(cache.statistics().bytes_read,
            cache.statistics().missed_bytes + cache.statistics().prefetched_bytes);
}

TEST_P(CacheOf, WrongGuessesMakeRoomFirst) {
  const int64_t k = PackReader(path_).config().experts_per_token;
  LoadedModel model(options(k + 2));
  ExpertCache& cache = model.experts();
  const PackBank& bank = model.pack().index().content.banks[0];
  const std::vector<int32_t> kept = {0, 1};
  cache.fetch(bank, kept);
  const auto experts = static_cast<int32_t>(bank.experts.size());
  for (int32_t wrong = 2 + static_cast<int32_t>(k); wrong + 1 < experts; wrong += 2) {
    cache.prefetch(bank, std::vector<int32_t>{wrong, wrong + 1});
    cache.fetch(bank, kept);
  }
  EXPECT_EQ(cache.statistics().misses, 2);
  std::vector<int32_t> others;
  for (int32_t position = 2; position < 2 + k; ++position) others.push_back(position);
  for (const ExpertWeights* expert : cache.fetch(bank, others)) EXPECT_NE(expert, nullptr);
}

TEST_P(CacheOf, GuessesNeverTakeTheRoomThatARequestNeeds) {
  const int64_t k = PackReader(path_).config().experts_per_token;
  LoadedModel model(options(k));
  ExpertCache& cache = model.experts();
  const auto& banks = model.pack().index().content.banks;
  std::vector<int32_t> many;
  for (int32_t position = 0; position < 2 * k; ++position) many.push_back(position);
  cache.prefetch(banks[1], many);  // fills the cache
  std::vector<int32_t> asked(many.begin(), many.begin() + k);
  EXPECT_EQ(std::ssize(cache.fetch(banks[0], asked)), k);
  EXPECT_EQ(cache.statistics().misses, k);
}

TEST_P(CacheOf, APolicyThatSharesNeedsRoomForATokenInEveryLayer) {
  const PackReader pack(path_);
  const int64_t needed = pack.config().experts_per_token * std::ssize(pack.index().content.banks);
  LoadOptions load = options(needed - 1);
  EXPECT_NO_THROW(LoadedModel{load});
  load.expert_cache_policy = EvictionPolicy::kLruPerLayer;
  const std::string what = thrown_message([&] { LoadedModel{load}; });
  EXPECT_NE(what.find("layers' "), std::string::npos) << what;
  load = options(needed);
  load.expert_cache_policy = EvictionPolicy::kLruPerLayer;
  EXPECT_NO_THROW(LoadedModel{load});
}

// A copy of the pack to damage while it is open.
// A backend keeps copies by name, whichever cache brought them.
TEST(ExpertCache, NamesTellExpertsOfDifferentLayersApart) {
  const PackReader pack(test::pack_path("nano"));
  LayerExperts experts(pack, false);
  std::set<int64_t> names;
  for (const PackBank& bank : pack.index().content.banks) {
    experts.hold_layer(bank.layer, int64_t{1} << 30);
    for (const ExpertWeights* expert : experts.cache().fetch(bank, std::vector<int32_t>{0, 1})) {
      EXPECT_GE(expert->name, 0);
      EXPECT_TRUE(names.insert(expert->name).second) << bank.layer;
    }
  }
}

class DamagedCache : public CacheOf {
 protected:
  void SetUp() override {
    copy_ = folder_.path("copy.k3pack");
    std::filesystem::copy_file(path_, copy_);
  }
  LoadOptions options_of_copy() const {
    LoadOptions load = options(room_for(1.0));
    load.pack_path = copy_;
    return load;
  }
  TempFolder folder_;
  std::string copy_;
};

TEST_P(DamagedCache, AWrongGuessOfADamagedExpertHarmsNobody) {
  LoadedModel model(options_of_copy());
  const PackBank& bank = model.pack().index().content.banks[0];
  {
    std::fstream file(copy_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(bank.experts[5].extent.offset_bytes + 100);
    const int byte = file.get();
    file.seekp(bank.experts[5].extent.offset_bytes + 100);
    file.put(static_cast<char>(byte ^ 8));
  }
  const std::vector<int32_t> guess = {5};
  const std::vector<int32_t> sound = {1, 2};
  model.experts().fetch(bank, sound);
  model.experts().prefetch(bank, guess);
  EXPECT_EQ(model.experts().fetch(bank, sound).size(), 2u);
  model.experts().prefetch(bank, guess);
  const std::string name = ": layer " + std::to_string(bank.layer) + " expert " +
                           std::to_string(bank.experts[5].source_id);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(thrown_message([&] { model.experts().fetch(bank, guess); }),
              copy_ + name + ": is damaged: its hash does not match its bytes");
  }
  EXPECT_EQ(model.experts().fetch(bank, sound).size(), 2u);
}

TEST_P(DamagedCache, APackThatBecomesShorterIsOneLineWithItsName) {
  LoadedModel model(options_of_copy());
  const PackBank& bank = model.pack().index().content.banks[1];
  std::filesystem::resize_file(copy_, static_cast<size_t>(bank.experts[2].extent.offset_bytes));
  const std::string what = thrown_message([&] {
    model.experts().fetch(bank, std::vector<int32_t>{2, 3});
  });
  EXPECT_EQ(what.rfind(copy_ + ": ends at byte ", 0), 0u) << what;
  EXPECT_EQ(what.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Packs, CacheOf, testing::Values("nano", "nano_compact", "odd", "linear"),
                         [](const auto& instance) { return std::string(instance.param); });
INSTANTIATE_TEST_SUITE_P(Packs, DamagedCache, testing::Values("nano", "nano_compact"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace k3
