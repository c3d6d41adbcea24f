#include "runtime/evaluate.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>

#include "runtime/loaded_model.h"
#include "runtime/text_input.h"
#include "tests/runtime/packs.h"
#include "tests/safetensors_file.h"

namespace k3 {
namespace {

constexpr const char* kPack = K3_BINARY_DIR "/nano.k3pack";
constexpr const char* kGoldenIds = K3_SOURCE_DIR "/tests/golden/nano/heldout.safetensors";

// The ids of one held-out text as a single document.
EvalText golden_text(const std::string& domain) {
  return {.name = domain,
          .xxh3 = 0,
          .documents = {SafetensorsFile(kGoldenIds).read<int32_t>(domain + ".ids")}};
}

double golden_nll(const std::string& domain) {
  simdjson::dom::parser parser;
  return parser.load(K3_SOURCE_DIR "/tests/golden/nano/heldout_nll.json")[domain]["nll_per_token"];
}

class HeldOut : public testing::TestWithParam<const char*> {};

TEST_P(HeldOut, TokensOfTheTextAreTheGoldenIds) {
  const LoadedModel model({.pack_path = kPack});
  const TextFile file =
      read_text(std::string(K3_SOURCE_DIR "/examples/nano/text/heldout-") + GetParam() + ".jsonl");
  std::vector<int32_t> ids;
  for (const std::string& document : file.documents) {
    ids.push_back(model.tokenizer().bos_id());
    const auto encoded = model.tokenizer().encode(document);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  EXPECT_EQ(ids, golden_text(GetParam()).documents.front());
}

TEST_P(HeldOut, LossIsTheGoldenLoss) {
  LoadedModel model({.pack_path = kPack});
  const EvalResult result =
      evaluate(model.forward(), nullptr, golden_text(GetParam()), {.resamples = 0}, [](auto) {});
  EXPECT_NEAR(result.nll.mean, golden_nll(GetParam()), 1e-3);
}

TEST_P(HeldOut, CpuPredictsWhatReferencePredicts) {
  LoadedModel cpu({.pack_path = kPack, .backend = "cpu"});
  LoadedModel reference({.pack_path = kPack, .backend = "reference"});
  EvalText text = golden_text(GetParam());
  text.documents.front().resize(1025);
  const EvalResult result =
      evaluate(cpu.forward(), &reference.forward(), text, {.resamples = 0}, [](auto) {});
  EXPECT_EQ(result.positions, 1024);
  EXPECT_LE(result.comparison->kl.mean, 1e-4);
  EXPECT_GE(result.comparison->top1_agreement.mean, 0.995);
}

INSTANTIATE_TEST_SUITE_P(Texts, HeldOut, testing::Values("prose", "lexicon", "code"),
                         [](const auto& instance) { return std::string(instance.param); });

class EveryPack : public testing::TestWithParam<const char*> {
 protected:
  std::string path_ = test::pack_path(GetParam());
};

TEST_P(EveryPack, IsAtNoDistanceFromItself) {
  LoadedModel one({.pack_path = path_});
  LoadedModel two({.pack_path = path_});
  EvalText text{.name = "twice", .xxh3 = 0, .documents = {{932, 84, 263}, {932, 402, 291, 77}}};
  const EvalResult result = evaluate(one.forward(), &two.forward(), text, {}, [](auto) {});
  EXPECT_EQ(result.windows, 1);
  EXPECT_EQ(result.positions, 6);
  EXPECT_EQ(result.comparison->kl.mean, 0);
  EXPECT_EQ(result.comparison->kl_max, 0);
  EXPECT_EQ(result.comparison->top1_agreement.mean, 1);
  EXPECT_EQ(result.comparison->flipped_experts, 0);
  EXPECT_EQ(result.nll.mean, result.comparison->other_nll.mean);
}

TEST_P(EveryPack, PredictsTheFirstTokenOfTheNextWindowAtTheLastPositionOfOne) {
  LoadedModel model({.pack_path = path_});
  const std::vector<int32_t> ids = {932, 84, 263, 402, 291, 77, 310};
  const EvalText text{.name = "text", .xxh3 = 0, .documents = {ids}};
  const EvalResult result =
      evaluate(model.forward(), nullptr, text, {.window_tokens = 3}, [](auto) {});
  EXPECT_EQ(result.windows, 2);

  double sum = 0;
  for (size_t begin : {0, 3}) {
    SequenceState state(model.config());
    for (size_t t = begin; t < begin + 3; ++t) {
      model.forward().run({&ids[t], 1}, state);
      double total = 0;
      for (float logit : state.last_logits) total += std::exp(static_cast<double>(logit));
      const auto target = static_cast<size_t>(ids[t + 1]);
      sum += std::log(total) - static_cast<double>(state.last_logits[target]);
    }
  }
  EXPECT_NEAR(result.nll.mean, sum / 6, 1e-12);
}

K3_FOR_EVERY_PACK(EveryPack);

TEST(Evaluate, AnIntervalWidensWithTheSpreadBetweenDocuments) {
  LoadedModel model({.pack_path = kPack});
  // Two documents, one easy (a repeated token) and one hard: the interval is between their two
  // losses.
  EvalText text{.name = "text", .xxh3 = 0, .documents = {}};
  text.documents.push_back(std::vector<int32_t>(20, 32));
  text.documents.push_back({1900, 7, 1345, 900, 12, 1777, 45, 600, 2001, 33, 1500, 1, 999, 1234});
  const EvalResult result = evaluate(model.forward(), nullptr, text, {}, [](auto) {});
  EXPECT_LT(result.nll.low, result.nll.mean - 0.1);
  EXPECT_GT(result.nll.high, result.nll.mean + 0.1);
}

}  // namespace
}  // namespace k3
