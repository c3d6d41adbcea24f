#include <gtest/gtest.h>

#include "passes/pipeline.h"
#include "tests/thrown_message.h"
#include "tests/tiny_model.h"

namespace k3 {
namespace {

constexpr const char* kMatrix = "model.layers.0.mlp.down_proj.weight";
constexpr const char* kNorm = "model.norm.weight";

class ApplyTuning : public testing::Test {
 protected:
  ApplyTuning() { source_.open(folder_); }

  const TrunkTensor& tensor(std::string_view name) const {
    return *std::ranges::find(source_.model.trunk, name, &TrunkTensor::name);
  }
  TunedTensor scales_of(const char* name) const {
    const Shape& shape = tensor(name).shape;
    return ones(name, {shape[0], Blocks160{Format::kTernary, shape[0], shape[1]}.blocks_per_row()});
  }
  TunedTensor gain_of(const char* name) const { return ones(name, tensor(name).shape); }
  static TunedTensor ones(const char* name, const Shape& shape) {
    return {name, shape, std::vector<float>(static_cast<size_t>(*shape.elements()), 1)};
  }
  PassResults run(const std::vector<TunedTensor>& tensors) {
    Options options;
    options.ternary_trunk.trunk = Precision::kTernary;
    options.tuning.path = folder_.path("t.k3tune");
    write_tuning(options.tuning.path, 0xfeed, tensors);
    Progress quiet(Progress::Style::kQuiet);
    return run_pipeline(source_.model, options, quiet);
  }

  TempFolder folder_;
  TinySource source_;
};

TEST_F(ApplyTuning, NamesTheTensorsThatAreTunedAndKeepsGainsAsFloats) {
  const PassResults results = run({scales_of(kMatrix), gain_of(kNorm)});
  EXPECT_EQ(tensor(kMatrix).tuned, 0);
  EXPECT_EQ(tensor(kMatrix).format, Format::kTernary);
  EXPECT_EQ(tensor(kNorm).tuned, 1);
  EXPECT_EQ(tensor(kNorm).dtype, Dtype::kBf16);
  EXPECT_EQ(tensor(kNorm).format, Format::kF32);
  EXPECT_FALSE(tensor("model.layers.0.mlp.up_proj.weight").tuned);
  EXPECT_EQ(results.inputs.back().second, hex_digits(0xfeed));
}

TEST_F(ApplyTuning, TakesCodesBesideTheirScalesOnly) {
  const TunedTensor codes{
      std::string(kMatrix) + ".codes",
      tensor(kMatrix).shape,
      {},
      std::vector<int8_t>(static_cast<size_t>(*tensor(kMatrix).shape.elements()))};
  EXPECT_NE(thrown_message([&] { run({codes}); }).find(".codes: are codes without scales"),
            std::string::npos);
  source_.open(folder_);
  run({codes, scales_of(kMatrix)});
  EXPECT_EQ(tensor(kMatrix).tuned_codes, 0);
  EXPECT_EQ(tensor(kMatrix).tuned, 1);
  TunedTensor narrow = codes;
  narrow.shape = {1, *codes.shape.elements()};
  EXPECT_NE(thrown_message([&] {
              run({narrow, scales_of(kMatrix)});
            }).find(".codes: shape is [1, "),
            std::string::npos);
}

TEST_F(ApplyTuning, WhatDoesNotFitTheModelIsNamed) {
  const auto refusal = [&](const std::vector<TunedTensor>& tensors) {
    return thrown_message([&] { run(tensors); });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal({ones(kMatrix, {1, 1})}), std::string(kMatrix) + ": shape is [1, 1], its scales");
  expect(refusal({ones(kNorm, {3})}), std::string(kNorm) + ": shape is [3], expected ");
  expect(refusal({ones("model.layers.9.mlp.up_proj.weight", {2, 1})}), "is not in the model");
  expect(refusal({gain_of("model.embed_tokens.weight")}), "model.embed_tokens.weight: is bf16 ");
  expect(refusal({ones(kMatrix, {1, 1}), ones(kNorm, {3})}), "2 problems, the first: ");
}

}  // namespace
}  // namespace k3
