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

TEST_F(ApplyTuning, EveryTensorThatDoesNotFitIsNamed) {
  TunedTensor wide = scales_of(kMatrix);
  wide.shape = {wide.shape[0], 2};
  wide.values.resize(2 * wide.values.size());
  const std::string message = thrown_message([&] {
    run({wide, ones(kNorm, {3}), ones("model.layers.9.mlp.up_proj.weight", {2, 1}),
         gain_of("model.embed_tokens.weight")});
  });
  EXPECT_NE(message.find(std::string(kMatrix) + ": shape is "), std::string::npos) << message;
  EXPECT_NE(message.find(std::string(kNorm) + ": shape is [3], expected "), std::string::npos);
  EXPECT_NE(message.find("model.layers.9.mlp.up_proj.weight: is not in the model"),
            std::string::npos);
  EXPECT_NE(message.find("model.embed_tokens.weight: is bf16 "), std::string::npos);
}

}  // namespace
}  // namespace k3
