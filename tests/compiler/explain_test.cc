#include "compiler/explain.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/compile_tiny.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

// What is said of `name` in the pack of `source`.
std::string explain(TinySource& source, const std::string& name) {
  const TempFolder folder;
  const PackReader pack = compile_tiny(source, folder);
  testing::internal::CaptureStdout();
  try {
    run_explain({pack.path(), name, false});
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "lacks " << part;
}

TEST(Explain, ATensorIsFoundWithAndWithoutItsPrefix) {
  TinySource source;
  const std::string name = "model.layers.1.self_attn.q_b_proj.weight";
  const std::string said = explain(source, name);
  expect_part(said, "  family        mla\n");
  expect_part(said, "p." + name + ": ");
  expect_part(said, "  decision      ternary_trunk: bf16: source precision; ");
  EXPECT_EQ(explain(source, "p." + name), said);
}

TEST(Explain, AnExpertThatItsBankLeavesOutSaysSo) {
  TinySource source;
  Bank& bank = source.model.banks[0];
  bank.left_out.push_back(bank.experts[1]);
  bank.experts.erase(bank.experts.begin() + 1);
  const std::string said = explain(source, "model.layers.1.experts.1");
  expect_part(said, "expert 1 of layer 1\n");
  expect_part(said, "  left out      its bank keeps 3 of 4 experts\n");
  expect_part(said, "prune_experts: bank of layer 1: keep 3 of 4: ");
  expect_part(explain(source, "model.layers.1.experts.2"), "position 1 of the 3 kept of 4\n");
}

TEST(Explain, TheVisionPartIsLeftOutWhereTheCheckpointHadOne) {
  TinySource source;
  const std::string name = "vision_tower.blocks.0.norm.weight";
  expect_part(thrown_message([&] { explain(source, name); }), "is no tensor or expert");
  source.model.dropped.push_back({Family::kVision, 7, 1000, 2000});
  expect_part(explain(source, name), "left out 7 tensors with 2,000 bytes\n");
  source.model.dropped.back().tensors = std::numeric_limits<int64_t>::max();
  expect_part(thrown_message([&] { explain(source, name); }),
              "pass census: its dropped tensors are 9.22337e+18, expected a count");
}

TEST(Explain, ALayerWithoutExpertsIsNamed) {
  TinySource source;
  expect_part(thrown_message([&] { explain(source, "model.layers.0.experts.1"); }),
              "layer 0 has no experts; layers with experts are 1 to 1");
  expect_part(thrown_message([&] { explain(source, "model.layers.1.experts.4"); }),
              "layer 1 has experts 0 to 3");
}

}  // namespace
}  // namespace k3
