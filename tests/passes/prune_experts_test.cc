#include <gtest/gtest.h>

#include "passes/model_router_hash.h"
#include "passes/pipeline.h"
#include "schema/trace_writer.h"
#include "tests/compile_tiny.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

Progress quiet{Progress::Style::kQuiet};

// The tiny model has one bank, of layer 1, with 4 experts of which a token chooses 2.
class PruneExperts : public testing::Test {
 protected:
  PruneExperts() { source_.open(folder_); }

  TraceHeader header() {
    return {.router_xxh3 = model_router_hash(source_.model),
            .experts = 4,
            .experts_per_token = 2,
            .has_weights = true,
            .has_norms = true,
            .layers = {1}};
  }
  // Reap scores 1, 0, 4, 4 for experts 0 to 3; expert 1 is never chosen.
  Options traced(const TraceHeader& head) {
    TraceWriter writer(folder_.path("t"), head);
    writer.write({.layers = 1,
                  .documents = {{1, "a"}},
                  .tokens = {{0, 0, TracePhase::kPrefill}, {0, 1, TracePhase::kPrefill}},
                  .ids = {3, 2, 0, 3},
                  .scores = {0.5F, 0.5F, 0.5F, 0.5F},
                  .weights = {0.5F, 0.5F, 0.5F, 0.5F},
                  .norms = {8, 8, 2, 8}});
    writer.finish(2);
    Options options;
    options.prune_experts.traces = {folder_.path("t")};
    return options;
  }
  std::string refusal(const Options& options) {
    return thrown_message([&] { run_pipeline(source_.model, options, quiet); });
  }
  static std::vector<int32_t> ids(const std::vector<Expert>& experts) {
    std::vector<int32_t> list;
    for (const Expert& expert : experts) list.push_back(expert.source_id);
    return list;
  }

  TempFolder folder_;
  TinySource source_;
};

TEST_F(PruneExperts, TheHighestScoresStayInOrderAndTheRestIsLeftOut) {
  Options options = traced(header());
  options.prune_experts.keep = 2;
  run_pipeline(source_.model, options, quiet);
  EXPECT_EQ(ids(source_.model.banks[0].experts), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(ids(source_.model.banks[0].left_out), (std::vector<int32_t>{0, 1}));
}

TEST_F(PruneExperts, ATraceAloneOrdersABankAndDropsNothing) {
  run_pipeline(source_.model, traced(header()), quiet);
  EXPECT_EQ(ids(source_.model.banks[0].experts), (std::vector<int32_t>{2, 3, 0, 1}));
}

TEST_F(PruneExperts, ColdOnesLieBehindAllOthersByFallingScore) {
  Options options = traced(header());
  options.prune_experts.keep = 2;
  options.prune_experts.keep_cold = true;
  TinySource fresh;
  const PackReader pack = compile_tiny(fresh, folder_, options);
  EXPECT_EQ(pack.verify(), std::vector<std::string>());
  const std::vector<PackExpert>& experts = pack.index().content.banks[0].experts;
  ASSERT_EQ(experts.size(), 4u);
  const std::vector<uint32_t> order = {2, 3, 0, 1};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(experts[i].source_id, order[i]);
    EXPECT_EQ(experts[i].cold, i >= 2);
    if (i > 0) {
      EXPECT_GT(experts[i].extent.offset_bytes, experts[i - 1].extent.offset_bytes);
    }
  }
}

TEST_F(PruneExperts, APlanReplaysItselfByteForByte) {
  Options options = traced(header());
  options.prune_experts.keep = 2;
  TinySource first;
  const PackReader traced_pack = compile_tiny(first, folder_, options);
  const std::vector<std::byte> bytes = file_bytes(traced_pack.path());
  const PassResults results = run_pipeline(source_.model, options, quiet);
  Options replay;
  replay.prune_experts.plan_path = folder_.write("plan", format_prune_plan(*results.plan));
  TinySource second;
  EXPECT_EQ(file_bytes(compile_tiny(second, folder_, replay).path()), bytes);
}

TEST_F(PruneExperts, FewerThanATokenChoosesOrMoreThanThereAreAreRefused) {
  Options options = traced(header());
  options.prune_experts.keep = 1;
  EXPECT_EQ(refusal(options),
            "prune_experts: --prune-topk is 1, expected 2, which a token chooses, to 4, which a "
            "layer has");
  options.prune_experts.keep = 5;
  EXPECT_EQ(refusal(options),
            "prune_experts: --prune-topk is 5, expected 2, which a token chooses, to 4, which a "
            "layer has");
}

TEST_F(PruneExperts, ATraceOfAnotherModelIsRefused) {
  TraceHeader other = header();
  other.router_xxh3 = 1;
  const std::string message = refusal(traced(other));
  EXPECT_NE(message.find("the traces are of the model with router hash 0000000000000001, this "
                         "checkpoint has router hash "),
            std::string::npos)
      << message;
  other.router_xxh3 = 0;
  EXPECT_NE(refusal(traced(other)).find("no known model"), std::string::npos);
}

TEST_F(PruneExperts, ATraceWhoseNumbersAreNotTheModelsIsRefused) {
  TraceHeader other = header();
  other.experts = 5;
  EXPECT_EQ(refusal(traced(other)),
            "prune_experts: the traces are of 1 layers in which a token chooses 2 of 5 experts, "
            "this checkpoint has 1 and 2 of 4");
  other = header();
  other.layers = {0, 1};  // bank 0 would get the numbers of layer 0
  EXPECT_EQ(refusal(traced(other)),
            "prune_experts: the traces are of 2 layers in which a token chooses 2 of 4 experts, "
            "this checkpoint has 1 and 2 of 4");
}

TEST_F(PruneExperts, ALayerTheTraceNeverSawIsRefused) {
  TraceHeader other = header();
  other.layers = {0};
  EXPECT_EQ(refusal(traced(other)),
            "prune_experts: bank of layer 1: the traces never saw this layer");
}

TEST_F(PruneExperts, ATraceOfAMaskedRunIsRefused) {
  TraceHeader masked = header();
  masked.masked = true;
  EXPECT_NE(refusal(traced(masked)).find("some experts could not be chosen"), std::string::npos);
}

TEST_F(PruneExperts, AScoreThatTheTraceCannotGiveIsRefused) {
  TraceHeader ids = header();
  ids.has_weights = ids.has_norms = false;
  TraceWriter writer(folder_.path("ids"), ids);
  writer.write({.layers = 1,
                .documents = {{1, "a"}},
                .tokens = {{0, 0, TracePhase::kPrefill}},
                .ids = {3, 2}});
  Options options;
  options.prune_experts.traces = {folder_.path("ids")};
  EXPECT_EQ(refusal(options),
            "prune_experts: the traces have no norms of outputs, which the score reap needs");
  options.prune_experts.score = ExpertScore::kGate;
  EXPECT_EQ(refusal(options),
            "prune_experts: the traces have no weights, which the score gate needs");
  options.prune_experts.score = ExpertScore::kFrequency;
  EXPECT_EQ(refusal(options), "no error");
}

TEST_F(PruneExperts, ABudgetBelowTheFloorIsRefused) {
  Options options = traced(header());
  options.prune_experts.budget_bytes = 1000;
  EXPECT_NE(refusal(options).find("--prune-budget-gb allows 1000 bytes, 4 experts of each layer"),
            std::string::npos);
}

TEST_F(PruneExperts, ThePackNamesPlanAndTrace) {
  Options options = traced(header());
  options.prune_experts.keep = 2;
  TinySource fresh;
  const PackReader pack = compile_tiny(fresh, folder_, options);
  std::vector<std::string> names;
  for (const auto& [name, value] : pack.index().provenance.options) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"trunk", "head", "experts", "expert score",
                                             "prune plan", "cold", "trace 0"}));
}

}  // namespace
}  // namespace k3
