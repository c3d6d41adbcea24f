#include "runtime/trace_recorder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/dump.h"
#include "runtime/evaluate.h"
#include "runtime/loaded_model.h"
#include "runtime/observers.h"
#include "schema/trace_reader.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

// Reads a trace whose blocks cover all layers into one block.
TraceBlock read_joined(const std::string& path, TraceHeader& header) {
  TraceReader reader(path);
  header = reader.header();
  TraceBlock joined;
  EXPECT_TRUE(reader.next(joined));
  TraceBlock more;
  EXPECT_FALSE(reader.next(more));
  EXPECT_FALSE(reader.is_cut());
  return joined;
}

class Traced : public testing::TestWithParam<const char*> {
 protected:
  // Runs the prompt and four more tokens, and traces them.
  void record(TraceOrder order = TraceOrder::kTokenMajor) {
    LoadedModel model({.pack_path = test::pack_path(GetParam()), .chunk_tokens = 4});
    config_ = model.config();
    TraceRecorder trace(folder_.path("t"), model.pack(), model.config(), false, order);
    const uint32_t document = trace.add_document({99, "here"});
    std::vector<TraceToken> tokens;
    for (uint32_t i = 0; i < test::kPrompt.size(); ++i) {
      tokens.push_back({document, i, TracePhase::kPrefill});
    }
    const auto count = static_cast<uint32_t>(tokens.size());
    trace.announce(tokens, {document, count, TracePhase::kDecode});
    SequenceState state(model.config());
    generate(
        model.forward(), state, model.tokenizer(), test::kPrompt, {.max_new_tokens = 4},
        [](auto) {}, &trace);
    trace.finish();
    block_ = read_joined(folder_.path("t"), header_);
  }

  TempFolder folder_;
  ModelConfig config_;
  TraceHeader header_;
  TraceBlock block_;
};

TEST_P(Traced, ATraceHasEveryTokenWithItsPlace) {
  record();
  ASSERT_EQ(block_.tokens.size(), test::kPrompt.size() + 4);
  for (uint32_t i = 0; i < block_.tokens.size(); ++i) {
    const TracePhase phase = i < test::kPrompt.size() ? TracePhase::kPrefill : TracePhase::kDecode;
    EXPECT_EQ(block_.tokens[i], (TraceToken{0, i, phase}));
  }
  EXPECT_EQ(block_.documents, (std::vector<TraceDocument>{{99, "here"}}));
  EXPECT_EQ(block_.layers, std::ssize(header_.layers));
  EXPECT_EQ(header_.experts, config_.experts);
}

TEST_P(Traced, WeightsFollowFromTheUnbiasedScores) {
  record();
  const auto k = static_cast<size_t>(config_.experts_per_token);
  for (size_t row = 0; row < block_.ids.size(); row += k) {
    double sum = 0;
    for (size_t i = row; i < row + k; ++i) sum += static_cast<double>(block_.scores[i]);
    const double divisor = config_.renormalize ? sum + 1e-20 : 1.0;
    for (size_t i = row; i < row + k; ++i) {
      EXPECT_EQ(block_.weights[i], static_cast<float>(static_cast<double>(block_.scores[i]) /
                                                      divisor * config_.routed_scaling_factor));
      EXPECT_GT(block_.norms[i], 0.0F);
    }
  }
}

// What came next would have been chosen had the chosen ones been masked, so replay by masking
// needs no more than the trace.
TEST_P(Traced, NextExpertsAreOthersThanTheChosen) {
  record();
  ASSERT_EQ(header_.next_experts,
            std::min(config_.experts_per_token, config_.experts - config_.experts_per_token));
  const auto k = static_cast<size_t>(config_.experts_per_token);
  const auto next = static_cast<size_t>(header_.next_experts);
  for (size_t row = 0; row < block_.ids.size() / k; ++row) {
    std::set<uint16_t> ids(block_.ids.begin() + static_cast<int64_t>(row * k),
                           block_.ids.begin() + static_cast<int64_t>((row + 1) * k));
    ids.insert(block_.next_ids.begin() + static_cast<int64_t>(row * next),
               block_.next_ids.begin() + static_cast<int64_t>((row + 1) * next));
    EXPECT_EQ(ids.size(), k + next);
  }
}

TEST_P(Traced, TracingChangesNoBitOfTheOutput) {
  LoadedModel model({.pack_path = test::pack_path(GetParam())});
  const auto logits_with = [&](RunObserver* observer) {
    SequenceState state(model.config());
    model.forward().run(test::kPrompt, state, nullptr, observer);
    return state.last_logits;
  };
  TraceRecorder trace(folder_.path("t"), model.pack(), model.config(), false);
  trace.add_document({1, "here"});
  EXPECT_EQ(logits_with(&trace), logits_with(nullptr));
}

K3_FOR_EVERY_PACK(Traced);

constexpr const char* kNano = K3_BINARY_DIR "/nano.k3pack";

TEST(TraceRecorder, HasTheIdsAndWeightsOfADump) {
  const TempFolder folder;
  LoadedModel model({.pack_path = kNano});
  struct Routing final : RunObserver {
    void on_layer(int64_t, int64_t, const float*) override {}
    void on_logits(int64_t, const float*) override {}
    void on_routing(int64_t, int64_t tokens, const int32_t* source_ids,
                    const float* given) override {
      for (int64_t i = 0; i < tokens * 4; ++i) {
        ids.push_back(static_cast<uint16_t>(source_ids[i]));
        weights.push_back(given[i]);
      }
    }
    std::vector<uint16_t> ids;
    std::vector<float> weights;
  } routing;
  TraceRecorder trace(folder.path("t"), model.pack(), model.config(), false);
  trace.add_document({1, "here"});
  Observers both({&routing, &trace});
  SequenceState state(model.config());
  model.forward().run(test::kPrompt, state, nullptr, &both);
  trace.finish();
  TraceHeader header;
  const TraceBlock block = read_joined(folder.path("t"), header);
  EXPECT_EQ(block.ids, routing.ids);
  EXPECT_EQ(block.weights, routing.weights);
}

// Layer by layer, as a capture of a model larger than memory runs: two chunks through every layer
// before the next.
TEST(TraceRecorder, WritesABlockALayerWhenLayersComeOneByOne) {
  const TempFolder folder;
  const LoadedModel model({.pack_path = kNano});
  TraceRecorder trace(folder.path("t"), model.pack(), model.config(), false,
                      TraceOrder::kLayerMajor);
  trace.add_document({1, "here"});
  const std::vector<int32_t> source_ids = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> bias(9);
  const std::vector<float> scores = {0.9F, 0.8F, 0.7F, 0.6F, 0.5F, 0.4F, 0.3F, 0.2F, 0.1F};
  const std::vector<int32_t> slots = {0, 1, 2, 3};
  const std::vector<float> ones = {1, 1, 1, 1};
  for (const int64_t layer : {1, 2}) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      trace.on_experts({.layer = layer,
                        .tokens = 1,
                        .source_ids = source_ids,
                        .score_bias = bias.data(),
                        .scores = scores.data(),
                        .slots = slots.data(),
                        .weights = ones.data(),
                        .norms = ones.data()});
    }
  }
  trace.finish();
  TraceReader reader(folder.path("t"));
  TraceBlock block;
  for (int64_t layer = 0; layer < 2; ++layer) {
    ASSERT_TRUE(reader.next(block));
    EXPECT_EQ(block.first_layer, layer);
    EXPECT_EQ(block.layers, 1);
    EXPECT_EQ(block.first_token, 0);
    EXPECT_EQ(block.tokens, (std::vector<TraceToken>{{0, 0, TracePhase::kPrefill},
                                                     {0, 1, TracePhase::kPrefill}}));
    EXPECT_EQ(block.ids, (std::vector<uint16_t>{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(block.next_ids, (std::vector<uint16_t>{4, 5, 6, 7, 4, 5, 6, 7}));
  }
  EXPECT_FALSE(reader.next(block));
}

TEST(TraceRecorder, EvaluationSaysWhichDocumentATokenIsOf) {
  const TempFolder folder;
  LoadedModel model({.pack_path = kNano});
  TraceRecorder trace(folder.path("t"), model.pack(), model.config(), false);
  const EvalText text{.name = "two",
                      .xxh3 = 0,
                      .documents = {{132, 84, 263}, {402, 291, 905, 77, 310, 512}},
                      .document_xxh3 = {50, 60}};
  evaluate(
      model.forward(), nullptr, text, {.window_tokens = 4, .resamples = 0}, [](auto) {}, &trace);
  trace.finish();
  TraceHeader header;
  const TraceBlock block = read_joined(folder.path("t"), header);
  EXPECT_EQ(block.documents, (std::vector<TraceDocument>{{50, "two"}, {60, "two"}}));
  std::vector<uint32_t> documents;
  std::vector<uint32_t> positions;
  for (const TraceToken& token : block.tokens) {
    documents.push_back(token.document);
    positions.push_back(token.position);
  }
  EXPECT_EQ(documents, (std::vector<uint32_t>{0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(positions, (std::vector<uint32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace k3
