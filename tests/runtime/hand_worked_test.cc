// Layers of two values each, whose results are worked out on paper: one for every feature in which
// Kimi-Linear differs from Kimi K3.
//
// The embedding has the rows (1, 1) and (1, -1), all norms weigh with 1 and have next to no
// epsilon, so a layer's normed input is the token itself. What a test does not set is zero:
// projections without weights add nothing to the stream.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "compiler/pack_encode.h"
#include "runtime/expert_cache.h"
#include "runtime/forward.h"
#include "runtime/weights.h"
#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/hash.h"
#include "schema/little_endian.h"
#include "schema/model_tensors.h"
#include "schema/pack_frame.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

using Values = std::vector<float>;

// One layer of Kimi-Linear, two wide.
ModelConfig plain_config(AttentionKind attention, FfnKind ffn) {
  ModelConfig config;
  config.hidden_size = 2;
  config.vocab_size = 2;
  config.layers = {{attention, ffn}};
  config.rms_norm_epsilon = 1e-30;
  config.low_rank_norm_epsilon = 1e-30;
  config.qk_norm_epsilon = 1e-30;
  config.kda_heads = 1;
  config.kda_head_dim = 2;
  config.conv_kernel = 1;
  config.kda_gate_rank = 1;
  config.mla_heads = 1;
  config.kv_lora_rank = 1;
  config.qk_content_dim = 1;
  config.qk_extra_dim = 1;
  config.v_head_dim = 1;
  config.dense_intermediate_size = 1;
  config.activation = Activation::kSilu;
  config.experts = 2;
  config.experts_per_token = 2;
  config.expert_intermediate_size = 1;
  config.shared_experts = 1;
  config.renormalize = true;
  config.routed_scaling_factor = 2.446;
  return config;
}

// A pack whose tensors are f32 with the given values; norms are ones, all others zeros. Experts are
// bf16: w1, w3 and w2 of each, two values a matrix.
class HandPack {
 public:
  HandPack(const ModelConfig& config, const std::map<std::string, Values>& values,
           const std::vector<Values>& experts = {})
      : bytes_(static_cast<size_t>(kExtentAlignment)) {
    PackIndex index;
    index.content.config = config;
    index.provenance.compiler = "a hand";
    size_t used = 0;
    for (const ExpectedTensor& expected : expected_tensors(config)) {
      Values tensor(static_cast<size_t>(*expected.shape.elements()),
                    expected.name.ends_with("norm.weight") ? 1.0f : 0.0f);
      if (const auto found = values.find(expected.name); found != values.end()) {
        EXPECT_EQ(found->second.size(), tensor.size()) << expected.name;
        tensor = found->second;
        ++used;
      }
      index.content.tensors.push_back({expected.name, expected.family, Format::kF32,
                                       Layout::kRowMajor, expected.shape, place(tensor, 4)});
    }
    EXPECT_EQ(used, values.size()) << "a value for no tensor";
    if (config.layers[0].ffn == FfnKind::kMoe) {
      PackBank bank;
      bank.format = Format::kBf16;
      bank.source_experts = config.experts;
      bank.fixed_point = 30;
      for (uint32_t id = 0; id < 2; ++id) {
        bank.experts.push_back(
            {place(id < experts.size() ? experts[id] : Values(6), 2), id, {}, false});
      }
      index.content.banks.push_back(bank);
    }
    PackFrame frame;
    const auto encoded = encode_index(encode_content(index.content), index.provenance,
                                      index.receipts, index.retired);
    bytes_.resize(static_cast<size_t>(align_up(std::ssize(bytes_), kExtentAlignment)));
    frame.index = {std::ssize(bytes_), std::ssize(encoded), xxh3(encoded)};
    frame.file_bytes = frame.index.end_bytes();
    bytes_.insert(bytes_.end(), encoded.begin(), encoded.end());
    const auto head = encode_frame(frame);
    std::copy(head.begin(), head.end(), bytes_.begin());
  }

  // The residual stream after the layer, both values of each token, on one backend.
  Values stream(const std::string& backend_name, const std::vector<int32_t>& ids) const {
    struct Recorder final : ForwardObserver {
      Values hidden;
      void on_layer(int64_t, int64_t tokens, const float* values) override {
        hidden.assign(values, values + 2 * tokens);
      }
      void on_routing(int64_t, int64_t, const int32_t*, const float*) override {}
    };
    const TempFolder folder;
    const PackReader pack(folder.write("hand.k3pack", bytes_));
    const Weights weights(pack, pack.config(), true);
    ExpertCache experts(pack, 1, {.budget_bytes = 1 << 20});
    const auto backend = make_backend(backend_name);
    Forward forward(weights, experts, *backend, 8);
    SequenceState state(pack.config());
    Recorder recorder;
    forward.run(ids, state, nullptr, &recorder);
    return recorder.hidden;
  }

 private:
  Extent place(const Values& values, int64_t width_bytes) {
    bytes_.resize(static_cast<size_t>(align_up(std::ssize(bytes_), kExtentAlignment)));
    const auto offset = std::ssize(bytes_);
    bytes_.resize(bytes_.size() + values.size() * static_cast<size_t>(width_bytes));
    std::byte* at = bytes_.data() + offset;
    for (const float value : values) {
      if (width_bytes == 4) {
        store_little_endian(std::bit_cast<uint32_t>(value), at);
      } else {
        store_little_endian(encode_bf16(value), at);
      }
      at += width_bytes;
    }
    const auto written = std::span(bytes_).subspan(static_cast<size_t>(offset));
    return {offset, std::ssize(written), xxh3(written)};
  }

  std::vector<std::byte> bytes_;
};

const Values kEmbedding = {1, 1, 1, -1};
const std::string kAttention = "model.layers.0.self_attn.";
const std::string kMoe = "model.layers.0.block_sparse_moe.";

class HandWorked : public testing::TestWithParam<const char*> {
 protected:
  void expect_stream(const HandPack& pack, const Values& want) const {
    const Values got = pack.stream(GetParam(), {0, 1});
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << "value " << i;
  }
};

// Keys and queries are (1, 0) for both tokens, values (100, 0) and then (0, 100), beta is 1/2, the
// decay 1/2: softplus(0) = ln 2. First token: S = (50, 0), o = S / sqrt 2, normed (sqrt 2, 0).
// Second: S decays to (25, 0), u = ((0, 100) - (25, 0)) / 2, S = (12.5, 50), which normed is
// (1, 4) / sqrt 8.5. The gate's one rank reads the first input, 1, and gives logits (0, ln 3), so
// the output is scaled by (1/2, 3/4). The stream is plain: the input is added.
TEST_P(HandWorked, KdaDecaysBySoftplusAndIsGatedThroughItsRank) {
  const HandPack pack(plain_config(AttentionKind::kKda, FfnKind::kDense),
                      {{"model.embed_tokens.weight", kEmbedding},
                       {kAttention + "q_proj.weight", {1, 0, 0, 0}},
                       {kAttention + "k_proj.weight", {1, 0, 0, 0}},
                       {kAttention + "v_proj.weight", {50, 50, 50, -50}},
                       {kAttention + "q_conv1d.weight", {1, 1}},
                       {kAttention + "k_conv1d.weight", {1, 1}},
                       {kAttention + "v_conv1d.weight", {1, 1}},
                       {kAttention + "g_a_proj.weight", {1, 0}},
                       {kAttention + "g_b_proj.weight", {0, std::log(3.0f)}},
                       {kAttention + "o_proj.weight", {1, 0, 0, 1}}});
  const float root = std::sqrt(8.5f);
  expect_stream(pack, {1 + std::sqrt(2.0f) / 2, 1, 1 + 0.5f / root, -1 + 3 / root});
}

// The same with a decay logit of ln 2 from the low-rank projection, whose input is 1, and ln 3 from
// the bias: softplus(ln 6) = ln 7, which the rate of 2 makes a decay of 1/49. So the first value of
// S is half of 50/49 and the second 50. No gate logits: the output is halved.
TEST_P(HandWorked, KdaDecayAddsBiasAndMultipliesTheRate) {
  const HandPack pack(plain_config(AttentionKind::kKda, FfnKind::kDense),
                      {{"model.embed_tokens.weight", kEmbedding},
                       {kAttention + "q_proj.weight", {1, 0, 0, 0}},
                       {kAttention + "k_proj.weight", {1, 0, 0, 0}},
                       {kAttention + "v_proj.weight", {50, 50, 50, -50}},
                       {kAttention + "q_conv1d.weight", {1, 1}},
                       {kAttention + "k_conv1d.weight", {1, 1}},
                       {kAttention + "v_conv1d.weight", {1, 1}},
                       {kAttention + "f_a_proj.weight", {1, 0, 0, 0}},
                       {kAttention + "f_b_proj.weight", {std::log(2.0f), 0, 0, 0}},
                       {kAttention + "dt_bias", {std::log(3.0f), 0}},
                       {kAttention + "A_log", {std::log(2.0f)}},
                       {kAttention + "o_proj.weight", {1, 0, 0, 1}}});
  // S after the second token: decay 50 / 2 = 25/49 and 50; normed by the root of half their
  // squares.
  const double first = 25.0 / 49;
  const double rms = std::sqrt((first * first + 50 * 50) / 2);
  const auto half = [rms](double value) { return static_cast<float>(value / rms / 2); };
  expect_stream(pack, {1 + std::sqrt(2.0f) / 2, 1, 1 + half(first), -1 + half(50)});
}

// The latent of a token is its second value's sign, which the norm weighs with 2: 2 and -2. Content
// keys are the latent, values three times it, the extra key is the second value: 1 and -1. The
// second token's query (sqrt 2 ln 3 / 8, sqrt 2 ln 3 / 4) scores the first token higher by ln 3, so
// the weights are 3/4 and 1/4, the latent context 1, the value 3. Nothing gates it.
TEST_P(HandWorked, MlaHasOneQueryMatrixAndNoOutputGate) {
  const float unit = std::sqrt(2.0f) * std::log(3.0f) / 8;
  const HandPack pack(plain_config(AttentionKind::kMla, FfnKind::kDense),
                      {{"model.embed_tokens.weight", kEmbedding},
                       {kAttention + "q_proj.weight", {unit, 0, 2 * unit, 0}},
                       {kAttention + "kv_a_proj_with_mqa.weight", {0, 1, 0, 1}},
                       {kAttention + "kv_a_layernorm.weight", {2}},
                       {kAttention + "kv_b_proj.weight", {1, 3}},
                       {kAttention + "o_proj.weight", {1, -2}}});
  expect_stream(pack, {1 + 6, 1 - 12, 1 + 3, -1 - 6});
}

// SiLU(1) = 0.7310586 and SiLU(2) = 1.7615942. For both tokens the gate reads the first value; up
// is twice the second, so 2 and -2.
TEST_P(HandWorked, ADenseFfnIsGatedBySilu) {
  const HandPack pack(plain_config(AttentionKind::kMla, FfnKind::kDense),
                      {{"model.embed_tokens.weight", kEmbedding},
                       {"model.layers.0.mlp.gate_proj.weight", {1, 0}},
                       {"model.layers.0.mlp.up_proj.weight", {0, 2}},
                       {"model.layers.0.mlp.down_proj.weight", {1, 3}}});
  const float h = 2 * 0.7310586f;
  expect_stream(pack, {1 + h, 1 + 3 * h, 1 - h, -1 - 3 * h});
}

// Two experts with equal scores: each weighs 2.446 / 2 = 1.223. The first gives 2 SiLU(1) in the
// first value, the second SiLU(2) in the other, with the second token's sign changed in the first;
// the shared expert, unweighted, gives SiLU(-1) = -0.2689414 in both.
const std::map<std::string, Values> kMoeValues = {
    {"model.embed_tokens.weight", kEmbedding},
    {kMoe + "shared_experts.gate_proj.weight", {-1, 0}},
    {kMoe + "shared_experts.up_proj.weight", {1, 0}},
    {kMoe + "shared_experts.down_proj.weight", {1, 1}}};
const std::vector<Values> kExperts = {{1, 0, 0, 2, 1, 0}, {2, 0, 1, 0, 0, 1}};
constexpr float kFirst = 1.223f * 2 * 0.7310586f;
constexpr float kSecond = 1.223f * 1.7615942f;
constexpr float kShared = -0.2689414f;

TEST_P(HandWorked, RoutedExpertsWorkOnTheFullWidthAndWeigh2446InAll) {
  const HandPack pack(plain_config(AttentionKind::kMla, FfnKind::kMoe), kMoeValues, kExperts);
  expect_stream(pack, {1 + kFirst + kShared, 1 + kSecond + kShared, 1 - kFirst + kShared,
                       -1 + kSecond + kShared});
}

TEST_P(HandWorked, AModelMayHaveNoSharedExpert) {
  ModelConfig config = plain_config(AttentionKind::kMla, FfnKind::kMoe);
  config.shared_experts = 0;
  const HandPack pack(config, {{"model.embed_tokens.weight", kEmbedding}}, kExperts);
  expect_stream(pack, {1 + kFirst, 1 + kSecond, 1 - kFirst, -1 + kSecond});
}

INSTANTIATE_TEST_SUITE_P(Backends, HandWorked, testing::Values("reference", "cpu"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(SiluHeadroom, AnActivationBeyondItStopsTheRunWithTheLayersName) {
  const auto message = [](float gate) {
    return thrown_message([gate] {
      HandPack(plain_config(AttentionKind::kMla, FfnKind::kMoe), kMoeValues,
               {{gate, 0, 1, 0, 0x1p-10f, 0}})
          .stream("cpu", {0});
    });
  };
  EXPECT_EQ(message(0x1p20f), "no error");
  EXPECT_NE(message(0x1.02p20f).find("the stream after layer 0: value 0 is nan"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
