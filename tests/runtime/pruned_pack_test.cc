// What pruning must not do: change a bit of what the kept experts compute.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runtime/trace_recorder.h"
#include "tests/runtime/pruned_nano.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

using test::compile_nano;
using test::prompt_logits;

const std::string kFull = test::pack_path("nano");

std::string record_trace(const TempFolder& folder) {
  LoadedModel model({.pack_path = kFull});
  TraceRecorder trace(folder.path("t"), model.pack(), model.config(), false);
  trace.add_document({1, "here"});
  SequenceState state(model.config());
  model.forward().run(test::kPrompt, state, nullptr, &trace);
  trace.finish();
  return folder.path("t");
}

// A plan that keeps the `keep` experts of each layer that a walk in steps of 27 meets first: in
// another order than the checkpoint's.
std::string write_plan(const TempFolder& folder, int64_t keep) {
  return test::write_nano_plan(folder, "plan" + std::to_string(keep), [&](PlanLayer& layer) {
    for (int32_t i = 0; i < 64; ++i) {
      const int32_t id = (i * 27 + static_cast<int32_t>(layer.layer)) % 64;
      (i < keep ? layer.kept : layer.dropped).push_back(id);
    }
  });
}

class Pruned : public testing::TestWithParam<int64_t> {};

TEST_P(Pruned, ThePackHasTheBitsOfTheFullOneWithTheDroppedMasked) {
  const TempFolder folder;
  const std::string plan = write_plan(folder, GetParam());
  const std::vector<float> masked = prompt_logits({.pack_path = kFull, .prune_plan_path = plan});
  EXPECT_TRUE(std::all_of(masked.begin(), masked.end(), [](float x) { return std::isfinite(x); }));
  EXPECT_EQ(masked == prompt_logits({.pack_path = kFull}), GetParam() == 64);
  const std::string dropped = compile_nano(folder, "dropped", {.traces = {}, .plan_path = plan});
  EXPECT_EQ(prompt_logits({.pack_path = dropped}), masked);
  const std::string cold =
      compile_nano(folder, "cold", {.traces = {}, .plan_path = plan, .keep_cold = true});
  EXPECT_EQ(prompt_logits({.pack_path = cold}), masked);
  // And where experts pass through a cache that holds few of them.
  EXPECT_EQ(prompt_logits({.pack_path = dropped, .expert_cache_gb = 0.0003}), masked);
}

// From all to as few as a token chooses.
INSTANTIATE_TEST_SUITE_P(Kept, Pruned, testing::Values(64, 48, 16, 5, 4));

TEST(PrunedPack, KeepingAllIsTheSamePackAsNotPruning) {
  const TempFolder folder;
  const std::string trace = record_trace(folder);
  const PackReader ordered(compile_nano(folder, "ordered", {.traces = {trace}}));
  const PackReader all(compile_nano(folder, "all", {.traces = {trace}, .keep = 64}));
  EXPECT_EQ(all.payload_xxh3(), ordered.payload_xxh3());
  const int64_t begin_of_reports = ordered.index().provenance.reports.front().extent.offset_bytes;
  const std::vector<std::byte> a = file_bytes(ordered.path());
  const std::vector<std::byte> b = file_bytes(all.path());
  ASSERT_LT(begin_of_reports, std::ssize(a));
  EXPECT_TRUE(
      std::equal(a.begin() + kFrameBytes, a.begin() + begin_of_reports, b.begin() + kFrameBytes));
  EXPECT_NE(ordered.payload_xxh3(), PackReader(kFull).payload_xxh3());  // another order
  EXPECT_EQ(prompt_logits({.pack_path = ordered.path()}), prompt_logits({.pack_path = kFull}));
}

TEST(PrunedPack, AnExpertNoTokenEverChoseIsDroppedFirst) {
  const TempFolder folder;
  const std::string trace = record_trace(folder);  // nine tokens choose at most 36 of 64
  const PackReader pack(compile_nano(folder, "p", {.traces = {trace}, .keep = 36}));
  const std::vector<std::string> traces = {trace};
  const RoutingSums sums = sum_routing(traces);
  for (size_t layer = 0; layer < sums.layers.size(); ++layer) {
    const std::vector<int64_t>& chosen = sums.layers[layer].chosen;
    std::set<uint32_t> kept;
    for (const PackExpert& expert : pack.index().content.banks[layer].experts) {
      kept.insert(expert.source_id);
    }
    for (uint32_t id = 0; id < 64; ++id) {
      if (chosen[id] > 0) {
        EXPECT_TRUE(kept.contains(id)) << "layer " << layer << " expert " << id;
      }
    }
  }
}

TEST(PrunedPack, APlanNeedsAPackWithEveryExpert) {
  const TempFolder folder;
  const std::string plan = write_plan(folder, 16);
  for (const bool keep_cold : {false, true}) {
    const std::string pruned =
        compile_nano(folder, "p", {.traces = {}, .plan_path = plan, .keep_cold = keep_cold});
    EXPECT_EQ(
        thrown_message([&] { LoadedModel model({.pack_path = pruned, .prune_plan_path = plan}); }),
        pruned +
            ": layer 1 routes to 16 of 64 experts, --prune-plan needs a pack that has "
            "them all");
  }
}

TEST(PrunedPack, APlanForAnotherModelIsRefused) {
  const TempFolder folder;
  const std::string plan = write_plan(folder, 16);
  const std::string message = thrown_message(
      [&] { LoadedModel model({.pack_path = test::pack_path("odd"), .prune_plan_path = plan}); });
  EXPECT_NE(message.find(plan + ": was made for the model with router hash "), std::string::npos)
      << message;
}

TEST(PrunedPack, ATraceOfItIsOfTheSameModelButMasked) {
  const TempFolder folder;
  const std::string plan = write_plan(folder, 16);
  const std::string pruned = compile_nano(folder, "p", {.traces = {}, .plan_path = plan});
  LoadedModel model({.pack_path = pruned});
  TraceRecorder trace(folder.path("t"), model.pack(), model.config(), false);
  trace.finish();
  const std::vector<std::string> traces = {folder.path("t")};
  const TraceHeader header = sum_routing(traces).header;
  EXPECT_EQ(header.router_xxh3, router_hash(PackReader(kFull).index().content));
  EXPECT_TRUE(header.masked);
}

}  // namespace
}  // namespace k3
