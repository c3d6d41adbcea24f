#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/checkpoint.h"
#include "compiler/families.h"
#include "passes/pipeline.h"
#include "schema/hadamard.h"
#include "tests/double_forward.h"
#include "tests/safetensors_file.h"
#include "tests/thrown_message.h"
#include "tests/tiny_model.h"

namespace k3 {
namespace {

Progress quiet{Progress::Style::kQuiet};

Options rotating(uint64_t seed = 0) {
  Options options;
  options.rotate_stream = {.rotate = true, .seed = seed};
  return options;
}

double largest_difference(const DoubleForward::Vectors& a, const DoubleForward::Vectors& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    EXPECT_EQ(a[t].size(), b[t].size());
    for (size_t i = 0; i < a[t].size(); ++i) {
      largest = std::max(largest, std::abs(a[t][i] - b[t][i]));
    }
  }
  return largest;
}

void rotate(Model& model, uint64_t seed = 0) {
  run_pipeline(model, rotating(seed), quiet, "rotate_stream");
}

Model nano() {
  return import_model(Checkpoint(K3_SOURCE_DIR "/examples/nano/checkpoint"));
}

// The forward pass that judges the others is itself judged, by the goldens in double.
TEST(RotateStream, TheForwardPassInDoubleIsTheModel) {
  const SafetensorsFile goldens(K3_SOURCE_DIR "/tests/golden/nano/golden.safetensors");
  const SafetensorsFile float64(K3_SOURCE_DIR "/tests/golden/nano/float64.safetensors");
  const auto ids = goldens.read<int32_t>("prose.ids");
  const auto want = float64.read<float>("prose.logits");
  const auto logits = DoubleForward(nano()).run({ids.begin(), ids.begin() + 6});
  for (size_t i = 0; i < 6 * logits[0].size(); ++i) {
    ASSERT_NEAR(logits[i / logits[0].size()][i % logits[0].size()], want[i], 2e-6) << i;
  }
}

TEST(RotateStream, LogitsOfNanoAreTheSameInDouble) {
  const std::vector<int32_t> ids = {5, 700, 31, 1999, 2, 700, 64, 1203, 9};
  const auto want = DoubleForward(nano()).run(ids);
  Model model = nano();
  rotate(model);
  EXPECT_LE(largest_difference(DoubleForward(model).run(ids), want), 1e-10);
}

// Widths with odd factors, and gains that are far from one.
TEST(RotateStream, LogitsAreTheSameInDoubleAtOddWidths) {
  const TempFolder folder;
  TinySource source;
  for (TrunkTensor& tensor : source.model.trunk) {
    if (tensor.family != Family::kNorm && !tensor.name.ends_with("norm.weight")) continue;
    const auto bytes = source.bytes_of(tensor.source);
    for (size_t i = 0; tensor.dtype == Dtype::kBf16 && i < bytes.size(); i += 2) {
      store_little_endian(encode_bf16(0.25f + static_cast<float>(i % 14) / 4), &bytes[i]);
    }
  }
  source.open(folder);
  const std::vector<int32_t> ids = {3, 39, 12, 0, 12, 25};
  const auto want = DoubleForward(source.model).run(ids);
  rotate(source.model, 7);
  EXPECT_LE(largest_difference(DoubleForward(source.model).run(ids), want), 1e-10);
}

TEST(RotateStream, NormsWhoseGainsAreFoldedBecomeOnes) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  rotate(source.model);
  for (const TrunkTensor& tensor : source.model.trunk) {
    const bool keeps_gain =
        tensor.name.ends_with("o_norm.weight") || tensor.name.ends_with("kv_a_layernorm.weight");
    const bool is_norm = tensor.name.ends_with("norm.weight");
    EXPECT_EQ(tensor.folding.is_folded_away, is_norm && !keeps_gain) << tensor.name;
    if (!tensor.folding.is_folded_away) continue;
    WeightRows rows(source.model, tensor);
    std::vector<float> values(static_cast<size_t>(rows.cols()));
    rows.read(0, std::span(values));
    EXPECT_EQ(values, std::vector<float>(values.size(), 1.0f)) << tensor.name;
  }
}

TEST(RotateStream, WhatIsTouchedAndKeptIsF32AndFormatsGoOnAsBefore) {
  for (const auto& [precision, format] :
       {std::pair(Precision::kSource, Format::kF32), std::pair(Precision::kInt8, Format::kInt8),
        std::pair(Precision::kTernary2, Format::kTernary2)}) {
    const TempFolder folder;
    TinySource source;
    source.open(folder);
    Options options = rotating();
    options.ternary_trunk.trunk = precision;
    run_pipeline(source.model, options, quiet);
    for (const TrunkTensor& tensor : source.model.trunk) {
      const bool untouched = !tensor.folding.changes_values();
      const Format kept = untouched && tensor.dtype == Dtype::kBf16 ? Format::kBf16 : Format::kF32;
      EXPECT_EQ(tensor.format, tensor.may_quantize ? format : kept) << tensor.name;
    }
    EXPECT_EQ(source.tensor("model.layers.1.self_attn.kv_b_proj.weight").format, Format::kBf16);
  }
}

TEST(RotateStream, ThePlanSaysTheBasis) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  rotate(source.model, 12);
  const RotatedBasis want = {.seed = 12,
                             .stream_block = 32,
                             .query_block = 8,
                             .kda_block = 8,
                             .mla_block = 8,
                             .dense_block = 16,
                             .shared_block = 32,
                             .latent_block = 64};
  EXPECT_EQ(source.model.config.rotation, want);
}

TEST(RotateStream, WithoutTheOptionNothingIsTouched) {
  Model model = tiny_model();
  const PassResults results = run_pipeline(model, {}, quiet, "rotate_stream");
  EXPECT_FALSE(model.config.rotation.has_value());
  for (const TrunkTensor& tensor : model.trunk) EXPECT_FALSE(tensor.folding.changes_values());
  EXPECT_TRUE(results.passes.back().numbers.empty());
}

TEST(RotateStream, ModelsWhoseExpertsReadTheStreamAreRefused) {
  Model model = tiny_model();
  model.config.latent_size.reset();
  EXPECT_EQ(thrown_message([&] { rotate(model); }),
            "rotate_stream: the routed experts of this model read the stream itself and are never "
            "re-encoded, so it cannot be rotated");
}

TEST(RotateStream, K3sBlocksAreKnown) {
  EXPECT_EQ(hadamard_block(7168), 1024);
  EXPECT_EQ(hadamard_block(1536), 512);
  EXPECT_EQ(hadamard_block(128), 128);
  EXPECT_EQ(hadamard_block(33792), 1024);
  EXPECT_EQ(hadamard_block(6144), 2048);
  EXPECT_EQ(hadamard_block(3584), 512);
  EXPECT_EQ(hadamard_block(219), 1);
  EXPECT_EQ(hadamard_block(1 << 20), kLargestHadamard);
}

}  // namespace
}  // namespace k3
